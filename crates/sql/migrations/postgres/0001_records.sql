-- onlyonce, migration 1: one row a keyed call. Times are microseconds since 1970 by the clock of this server.
CREATE TABLE onlyonce_records (
    id          BYTEA    NOT NULL PRIMARY KEY, -- SHA-256 of scope, operation and key; never the key itself
    status      SMALLINT NOT NULL,             -- 0 in progress, 1 completed, 2 failed (may run again), 3 unknown
    hash_rules  SMALLINT NOT NULL,             -- the version of the rules by which the request was hashed
    hash        BYTEA    NOT NULL,             -- the hash of the request
    fence       BIGINT   NOT NULL,             -- rises with every attempt
    attempts    INTEGER  NOT NULL,
    owner       BYTEA    NOT NULL,             -- a nonce of the attempt
    began_over  SMALLINT NOT NULL,             -- 0 nothing, 1 a failed attempt, 2 one that ended without a word
    lease_until BIGINT   NOT NULL,
    created_at  BIGINT   NOT NULL,
    settled_at  BIGINT   NOT NULL,             -- 0 while in progress
    expires_at  BIGINT   NOT NULL,
    awaited     BOOLEAN  NOT NULL,             -- somebody listens for a change
    route       BYTEA    NOT NULL,             -- UTF-8
    key_hash    BYTEA    NOT NULL,             -- for searching
    scope_hash  BYTEA    NOT NULL,             -- for searching
    answer      BYTEA                          -- the answer, byte for byte
);
-- For the sweep.
CREATE INDEX onlyonce_records_expiry ON onlyonce_records (expires_at);
-- Which migrations there were.
CREATE TABLE onlyonce_records_migrations (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO onlyonce_records_migrations (version) VALUES (1);
