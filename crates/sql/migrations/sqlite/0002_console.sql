-- onlyonce, migration 2: what the console looks for: what waits for a person, and what became of a key.
CREATE INDEX onlyonce_records_open ON onlyonce_records (created_at) WHERE status <> 1;
CREATE INDEX onlyonce_records_key ON onlyonce_records (key_hash);
INSERT INTO onlyonce_records_migrations (version) VALUES (2);
