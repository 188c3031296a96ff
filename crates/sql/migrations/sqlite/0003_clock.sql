-- onlyonce, migration 3: the time of the records, noted now and then, so that it goes on where it was and no clock that is set moves it.
CREATE TABLE onlyonce_records_clock (
    one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    boot    BLOB,              -- the run of this machine, where it is known
    uptime  INTEGER NOT NULL,  -- microseconds since its boot
    wall    INTEGER NOT NULL,  -- microseconds since 1970 by the clock of this machine
    time    INTEGER NOT NULL,  -- the time of the records
    stepped INTEGER NOT NULL   -- the time of the records when that clock was last seen to be set forward
);
INSERT INTO onlyonce_records_migrations (version) VALUES (3);
