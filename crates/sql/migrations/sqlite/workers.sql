-- onlyonce, worker numbers of ids: the last window of each. Times are milliseconds since 1970 by the clock of this machine.
CREATE TABLE IF NOT EXISTS onlyonce_workers (
    worker_group  BLOB    NOT NULL,  -- UTF-8: those who share the numbers
    worker        INTEGER NOT NULL,
    holder        BLOB    NOT NULL,  -- a nonce of who has it, zeros after it was given back
    granted_from  INTEGER NOT NULL,
    granted_until INTEGER NOT NULL,  -- the first millisecond that may be granted to another holder
    PRIMARY KEY (worker_group, worker)
) WITHOUT ROWID;
