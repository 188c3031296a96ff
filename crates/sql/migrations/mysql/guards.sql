-- The tables of onlyonce's guards. Times are microseconds since 1970 by the database's clock.
CREATE TABLE IF NOT EXISTS onlyonce_dedup (
    id          BINARY(32)   NOT NULL PRIMARY KEY, -- SHA-256 over scope, operation and key: the key itself is never stored
    operation   VARCHAR(190) NOT NULL,             -- for people
    recorded_at BIGINT       NOT NULL,
    expires_at  BIGINT       NOT NULL,
    INDEX onlyonce_dedup_expires_at (expires_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS onlyonce_sequence (
    id          BINARY(32)   NOT NULL PRIMARY KEY, -- SHA-256 over the credential
    last_number BIGINT       NOT NULL,
    recorded_at BIGINT       NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
