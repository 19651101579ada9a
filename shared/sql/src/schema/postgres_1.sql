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
