-- Accounts have an id of their own. The view shows no way to sign in: neither password hashes nor the secret of a second factor.
create or replace view accounts as
    select (document::jsonb->>'email') collate "C" as email, revision,
        document::jsonb - 'password' - 'proofs' - 'second_factor' as document,
        substr(partition, 6) as account_id
    from records where partition >= 'acct/' and partition < 'acct0' and key = 'account';
