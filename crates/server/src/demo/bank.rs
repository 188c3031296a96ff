//! The world outside: a bank that charges whenever it is asked to, and writes it down where no store can undo it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use onlyonce::{Clock, SystemClock};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How long the bank takes. Long enough to click twice.
const THINKING: Duration = Duration::from_millis(400);
/// How many charges the page shows.
const SHOWN: usize = 50;

/// One charge, as the bank wrote it down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Charge {
    number: u64,
    pub(super) order: String,
    pub(super) amount: u64,
    protected: bool,
    /// Milliseconds since 1970.
    at: u64,
}

/// Appends every charge to a file; what is there at the start is remembered.
#[derive(Debug)]
pub(super) struct Bank {
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    file: File,
    /// The latest charges only; the file has them all.
    latest: Vec<Charge>,
    count: u64,
}

impl Bank {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut book = Book { file: file.try_clone()?, latest: Vec::new(), count: 0 };
        let (mut lines, mut line) = (BufReader::new(file), Vec::new());
        while lines.read_until(b'\n', &mut line)? > 0 {
            // A line that was cut short by a kill still was a charge, and the next one must not become a part of it.
            book.count += 1;
            if let Ok(charge) = serde_json::from_slice::<Charge>(&line) {
                // One that could not be written has its number all the same.
                book.count = book.count.max(charge.number);
                book.remember(charge);
            }
            if !line.ends_with(b"\n") {
                book.file.write_all(b"\n")?;
            }
            line.clear();
        }
        Ok(Self { book: Mutex::new(book) })
    }

    /// Charges, every time it is called: being asked once only is not the bank's business.
    pub(super) async fn charge(&self, order: &str, amount: u64, protected: bool) -> io::Result<String> {
        tokio::time::sleep(THINKING).await;
        let mut book = self.book.lock();
        book.count += 1;
        let at = SystemClock.wall_micros() / 1000;
        let charge = Charge { number: book.count, order: order.into(), amount, protected, at };
        let mut line = serde_json::to_vec(&charge)?;
        line.push(b'\n');
        book.file.write_all(&line)?;
        book.remember(charge);
        Ok(format!("R-{:06}", book.count))
    }

    /// The latest charges, the newest first, and how many there were in all.
    pub(super) fn statement(&self) -> (Vec<Charge>, u64) {
        let book = self.book.lock();
        (book.latest.iter().rev().cloned().collect(), book.count)
    }
}

impl Book {
    fn remember(&mut self, charge: Charge) {
        if self.latest.len() == SHOWN {
            self.latest.remove(0);
        }
        self.latest.push(charge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_charge_that_was_cut_short_stays_one_and_no_receipt_is_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("charges.jsonl");
        let open = || Bank::open(&file).unwrap();
        assert_eq!(open().charge("tea", 300, true).await.unwrap(), "R-000001");
        let mut torn = std::fs::read(&file).unwrap();
        torn.extend_from_slice(b"{\"number\":2,\"order\":\"\xff");
        std::fs::write(&file, torn).unwrap();
        assert_eq!(open().charge("tea", 300, true).await.unwrap(), "R-000003");
        let (latest, count) = open().statement();
        assert_eq!((latest.len(), latest[0].number, count), (2, 3, 3));
    }
}
