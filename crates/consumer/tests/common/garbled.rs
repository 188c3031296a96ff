//! A request to a Kafka, byte by byte, with what clients of Rust can't say. Everything in it is shorter than 64 bytes.

/// A record with this payload, the header `ce_id: garbled`, and one whose name is not UTF-8; into partition 0.
pub(crate) fn produce(topic: &str, payload: &[u8]) -> Vec<u8> {
    let headers: [(&[u8], &[u8]); 2] = [(b"ce_id", b"garbled"), (b"caf\xe9", b"x")];
    let batch = batch(&record(payload, &headers));
    let mut request = Vec::new();
    // Produce, version 3, as request 1 of no client; no transaction, all acks, 10 s.
    for part in
        [&[0, 0, 0, 3, 0, 0, 0, 1, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0xff], &10_000_i32.to_be_bytes()]
    {
        request.extend_from_slice(part);
    }
    request.extend(1_i32.to_be_bytes());
    request.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
    request.extend(topic.as_bytes());
    request.extend([1_i32, 0].map(i32::to_be_bytes).concat());
    request.extend(length(&batch));
    request.extend(batch);
    [length(&request).to_vec(), request].concat()
}

fn length(bytes: &[u8]) -> [u8; 4] {
    i32::try_from(bytes.len()).unwrap().to_be_bytes()
}

/// A signed number of variable length: one byte, for those up to 63.
fn small(n: usize) -> u8 {
    assert!(n < 64);
    u8::try_from(2 * n).unwrap()
}

fn record(payload: &[u8], headers: &[(&[u8], &[u8])]) -> Vec<u8> {
    const NO_KEY: u8 = 1;
    let mut record = vec![0, 0, 0, NO_KEY, small(payload.len())];
    record.extend(payload);
    record.push(small(headers.len()));
    for part in headers.iter().flat_map(|(name, value)| [name, value]) {
        record.push(small(part.len()));
        record.extend(*part);
    }
    [vec![small(record.len())], record].concat()
}

fn batch(record: &[u8]) -> Vec<u8> {
    const TIME: i64 = 1_700_000_000_000;
    // No attributes, the last offset is the first, the time, no producer, one record.
    let mut tail = [0_u8; 6].to_vec();
    tail.extend([TIME, TIME, -1].map(i64::to_be_bytes).concat());
    tail.extend([0xff; 6]);
    tail.extend(1_i32.to_be_bytes());
    tail.extend(record);
    // No leader's epoch, the second format, the checksum.
    let mut checked = vec![0xff, 0xff, 0xff, 0xff, 2];
    checked.extend(crc32c(&tail).to_be_bytes());
    checked.extend(tail);
    [0_i64.to_be_bytes().to_vec(), length(&checked).to_vec(), checked].concat()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let folded = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    });
    !folded
}
