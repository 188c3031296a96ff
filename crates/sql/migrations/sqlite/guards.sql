-- The tables of onlyonce's guards. Times are microseconds since 1970 by the database's clock.
CREATE TABLE IF NOT EXISTS onlyonce_dedup (
    id          BLOB    NOT NULL PRIMARY KEY, -- SHA-256 over scope, operation and key: the key itself is never stored
    operation   TEXT    NOT NULL,             -- for people
    recorded_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS onlyonce_dedup_expires_at ON onlyonce_dedup (expires_at);

CREATE TABLE IF NOT EXISTS onlyonce_sequence (
    id          BLOB    NOT NULL PRIMARY KEY, -- SHA-256 over the credential
    last_number INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL
) WITHOUT ROWID;
