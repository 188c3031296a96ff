-- onlyonce, migration 1: one row a keyed call. Times are microseconds since 1970 by the clock of this server.
-- DDL commits at once here, so every step may be repeated after a crash.
CREATE TABLE IF NOT EXISTS onlyonce_records (
    id          BINARY(32) NOT NULL PRIMARY KEY, -- SHA-256 of scope, operation and key; never the key itself
    status      SMALLINT   NOT NULL,             -- 0 in progress, 1 completed, 2 failed (may run again), 3 unknown
    hash_rules  SMALLINT   NOT NULL,             -- the version of the rules by which the request was hashed
    hash        BINARY(32) NOT NULL,             -- the hash of the request
    fence       BIGINT     NOT NULL,             -- rises with every attempt
    attempts    INTEGER    NOT NULL,
    owner       BINARY(16) NOT NULL,             -- a nonce of the attempt
    began_over  SMALLINT   NOT NULL,             -- 0 nothing, 1 a failed attempt, 2 one that ended without a word
    lease_until BIGINT     NOT NULL,
    created_at  BIGINT     NOT NULL,
    settled_at  BIGINT     NOT NULL,             -- 0 while in progress
    expires_at  BIGINT     NOT NULL,
    route       BLOB       NOT NULL,             -- UTF-8
    key_hash    BINARY(16) NOT NULL,             -- for searching
    scope_hash  BINARY(16) NOT NULL,             -- for searching
    answer      LONGBLOB   NULL,                 -- the answer, byte for byte
    INDEX onlyonce_records_expiry (expires_at)   -- for the sweep
) ENGINE = InnoDB;
-- Which migrations there were.
CREATE TABLE IF NOT EXISTS onlyonce_records_migrations (version INTEGER NOT NULL PRIMARY KEY) ENGINE = InnoDB;
INSERT IGNORE INTO onlyonce_records_migrations (version) VALUES (1);
