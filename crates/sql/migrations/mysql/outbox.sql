-- onlyonce, the outbox: events that were committed and are not published yet. Times are microseconds since 1970 by the clock of this server.
CREATE TABLE IF NOT EXISTS onlyonce_outbox (
    seq        BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id         VARBINARY(255) NOT NULL,  -- the message id, UTF-8: the same however often it is published
    topic      BLOB           NOT NULL,  -- UTF-8
    payload    LONGBLOB       NOT NULL,
    headers    LONGBLOB       NOT NULL,  -- a JSON object of texts
    attempts   INTEGER        NOT NULL,
    not_before BIGINT         NOT NULL,  -- a relay has it in hand until then, or it failed and waits
    created_at BIGINT         NOT NULL,
    event_key  VARBINARY(255),           -- UTF-8: events of one key are published in the order of seq
    INDEX onlyonce_outbox_due (not_before, seq),
    INDEX onlyonce_outbox_key (event_key, seq)
) ENGINE = InnoDB;
