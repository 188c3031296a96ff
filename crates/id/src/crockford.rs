//! Crockford's base 32, in lower case and of fixed width: the text sorts as the number does, and nobody mistakes an `l` for a
//! `1`. Reading takes either case, and `i`, `l`, `o` for what they look like.

const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The digits of `number`, `width` of them.
pub(crate) fn write(mut number: u128, width: usize) -> String {
    let mut digits = vec![b'0'; width];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(number & 31) as usize];
        number >>= 5;
    }
    digits.into_iter().map(char::from).collect()
}

/// The number that `text` of exactly `width` digits stands for; `None` if it is not such text or has more than `bits` bits.
pub(crate) fn read(text: &str, width: usize, bits: u32) -> Option<u128> {
    if text.len() != width {
        return None;
    }
    let (head, tail) = text.as_bytes().split_first()?;
    let first = value(*head)?;
    // The first digit may be cut: 13 digits hold 65 bits, and 26 hold 130.
    if first >> (bits - 5 * (u32::try_from(width).ok()? - 1)) != 0 {
        return None;
    }
    tail.iter().try_fold(first, |number, digit| Some(number << 5 | value(*digit)?))
}

fn value(digit: u8) -> Option<u128> {
    let digit = match digit.to_ascii_lowercase() {
        b'o' => b'0',
        b'i' | b'l' => b'1',
        other => other,
    };
    DIGITS.iter().position(|known| *known == digit).map(|value| value as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_sorts_as_numbers_do_and_reads_back() {
        let numbers = [0, 1, 31, 32, 1 << 40, u128::from(u64::MAX)];
        let texts: Vec<String> = numbers.iter().map(|number| write(*number, 13)).collect();
        assert!(texts.is_sorted());
        for (number, text) in numbers.iter().zip(&texts) {
            assert_eq!(read(text, 13, 64), Some(*number));
            assert_eq!(read(&text.to_uppercase(), 13, 64), Some(*number));
        }
    }

    #[test]
    fn what_looks_alike_is_alike_and_the_rest_is_refused() {
        assert_eq!(read("00000000000oI", 13, 64), Some(1));
        for wrong in ["", "0", "g000000000000", "000000000000u", "00000000000é", "00000000000000"] {
            assert_eq!(read(wrong, 13, 64), None, "{wrong}");
        }
    }
}
