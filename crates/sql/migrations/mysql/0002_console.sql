-- onlyonce, migration 2: what the console looks for: what waits for a person, and what became of a key.
ALTER TABLE onlyonce_records
    ADD INDEX onlyonce_records_open (status, created_at),
    ADD INDEX onlyonce_records_key (key_hash);
INSERT IGNORE INTO onlyonce_records_migrations (version) VALUES (2);
