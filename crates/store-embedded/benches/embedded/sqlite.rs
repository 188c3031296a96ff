//! The same two writes on SQLite, by a group-commit writer too.

use std::path::Path;

use crate::raw::Puts;

pub(crate) fn engine(path: &Path) -> Puts {
    let mut db = rusqlite::Connection::open(path.join("records.sqlite")).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.pragma_update(None, "synchronous", "FULL").unwrap();
    db.execute("CREATE TABLE records (id BLOB PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID", ()).unwrap();
    Puts::new(move |puts| {
        let transaction = db.transaction().unwrap();
        {
            let put =
                "INSERT INTO records VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET record = excluded.record";
            let mut put = transaction.prepare_cached(put).unwrap();
            for (key, value, _) in puts {
                put.execute((key, value)).unwrap();
            }
        }
        transaction.commit().unwrap();
    })
}
