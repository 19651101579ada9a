-- Revisions come from one counter for the whole store, so none ever repeats, whatever is deleted.
create table revision (
    only_row integer primary key check (only_row = 1),
    last integer not null
) strict;
insert into revision values (1, 0);

-- Texts compare by their UTF-8 bytes (collation binary). Read by key far more than written: one tree, no second look-up.
create table records (
    partition text not null,
    key text not null,
    revision integer not null,
    expires_at integer,
    document text not null,
    primary key (partition, key)
) strict, without rowid;
create index records_expiry on records (expires_at) where expires_at is not null;

-- Objects are up to 4 MiB: a tree of small rows that point to overflow pages, and `size` before the bytes, so that
-- questions about sizes read no content.
create table objects (
    namespace text not null,
    class text not null,
    digest blob not null,
    size integer not null,
    bytes blob not null,
    unique (namespace, class, digest)
) strict;
