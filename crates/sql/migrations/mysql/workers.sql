-- onlyonce, worker numbers of ids: the last window of each. Times are milliseconds since 1970 by the clock of this server.
CREATE TABLE IF NOT EXISTS onlyonce_workers (
    worker_group  VARBINARY(255) NOT NULL,  -- UTF-8: those who share the numbers
    worker        BIGINT         NOT NULL,
    holder        BINARY(16)     NOT NULL,  -- a nonce of who has it, zeros after it was given back
    granted_from  BIGINT         NOT NULL,
    granted_until BIGINT         NOT NULL,  -- the first millisecond that may be granted to another holder
    PRIMARY KEY (worker_group, worker)
) ENGINE = InnoDB;
