-- Revisions come from one sequence for the whole store, so none ever repeats, whatever is deleted.
create sequence vault_revision;

-- Texts compare by their UTF-8 bytes (collation "C"). The document stays text: what is read is what was written, and a
-- read costs no conversion; the views show it as jsonb.
create table records (
    partition text collate "C" not null,
    key text collate "C" not null,
    revision bigint not null,
    expires_at bigint,
    document text not null,
    primary key (partition, key)
);
create index records_expiry on records (expires_at) where expires_at is not null;

create table objects (
    namespace text collate "C" not null,
    class text collate "C" not null,
    digest bytea not null,
    size bigint not null,
    bytes bytea not null,
    primary key (namespace, class, digest)
);
-- Hashes and base64 hardly compress; the attempt would cost more than it saves.
alter table objects alter column bytes set storage external;

-- For operators who ask in SQL; the service reads none of these. A range of the partition stands for "begins with", so
-- that the primary key serves it ('0' follows '/'). A record whose time is over may still be seen here for a while.
create view documents as
    select split_part(partition, '/', 1) as kind, partition, key, revision,
           to_timestamp(expires_at) as expires_at, document::jsonb as document
    from records;
create view namespaces as
    select substr(partition, 4) as slug, revision, document::jsonb as document
    from records where partition >= 'ns/' and partition < 'ns0' and key = 'ns';
create view devices as
    select substr(partition, 5) as slug, key as public_key, revision, document::jsonb as document
    from records where partition >= 'dev/' and partition < 'dev0';
create view releases as
    select substr(partition, 5) as namespace_id, key::bigint as release, revision, document::jsonb as document
    from records where partition >= 'rel/' and partition < 'rel0';
create view accounts as
    select substr(partition, 6) as email, revision, document::jsonb - 'password' as document
    from records where partition >= 'acct/' and partition < 'acct0' and key = 'account';
create view users as
    select substr(partition, 6) as namespace_id, key as user_id, revision, document::jsonb as document
    from records where partition >= 'user/' and partition < 'user0';
create view clients as
    select substr(partition, 8) as client_id, revision, document::jsonb as document
    from records where partition >= 'client/' and partition < 'client0';
create view grants as
    select substr(partition, 7) as namespace_id, key, revision, to_timestamp(expires_at) as expires_at,
           document::jsonb as document
    from records where partition >= 'grant/' and partition < 'grant0';
create view audit as
    select substr(partition, 7) as namespace_id, key as id, to_timestamp(expires_at) as expires_at,
           document::jsonb as document
    from records where partition >= 'audit/' and partition < 'audit0';
