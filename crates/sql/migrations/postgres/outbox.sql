-- onlyonce, the outbox: events that were committed and are not published yet. Times are microseconds since 1970 by the clock of this server.
CREATE TABLE IF NOT EXISTS onlyonce_outbox (
    seq        BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         BYTEA   NOT NULL,  -- the message id, UTF-8: the same however often it is published
    topic      BYTEA   NOT NULL,  -- UTF-8
    payload    BYTEA   NOT NULL,
    headers    BYTEA   NOT NULL,  -- a JSON object of texts
    attempts   INTEGER NOT NULL,
    not_before BIGINT  NOT NULL,  -- a relay has it in hand until then, or it failed and waits
    created_at BIGINT  NOT NULL,
    event_key  BYTEA              -- UTF-8: events of one key are published in the order of seq
);
CREATE INDEX IF NOT EXISTS onlyonce_outbox_due ON onlyonce_outbox (not_before, seq);
CREATE INDEX IF NOT EXISTS onlyonce_outbox_key ON onlyonce_outbox (event_key, seq);
