//! What a client likes better than another, in `Accept` and `Accept-Language`.

/// One entry of such a header and its weight: `zh-CN;q=0.8`. `None` if the weight can't be read.
pub(crate) fn weighted(entry: &str) -> Option<(&str, f32)> {
    let mut parts = entry.split(';').map(str::trim);
    let what = parts.next()?;
    let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok())?;
    Some((what, weight))
}
