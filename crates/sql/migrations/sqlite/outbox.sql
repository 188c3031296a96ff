-- onlyonce, the outbox: events that were committed and are not published yet. Times are microseconds since 1970 by the clock of this machine.
CREATE TABLE IF NOT EXISTS onlyonce_outbox (
    seq        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    id         BLOB    NOT NULL,  -- the message id, UTF-8: the same however often it is published
    topic      BLOB    NOT NULL,  -- UTF-8
    payload    BLOB    NOT NULL,
    headers    BLOB    NOT NULL,  -- a JSON object of texts
    attempts   INTEGER NOT NULL,
    not_before INTEGER NOT NULL,  -- a relay has it in hand until then, or it failed and waits
    created_at INTEGER NOT NULL,
    event_key  BLOB               -- UTF-8: events of one key are published in the order of seq
);
CREATE INDEX IF NOT EXISTS onlyonce_outbox_due ON onlyonce_outbox (not_before, seq);
CREATE INDEX IF NOT EXISTS onlyonce_outbox_key ON onlyonce_outbox (event_key, seq);
