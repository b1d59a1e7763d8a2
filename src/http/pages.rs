//! Pages that are not larger than what one answer may hold: records are read some at a time, as long as there is room.

use super::problem::Problem;
use crate::error::Error;
use crate::store::{Page, PageRequest};

/// How many bytes one answer holds at most, but for the last of what is read at once.
pub(super) const MOST_BYTES: usize = 8 << 20;

/// How many are read before anything is known of how large they are.
const FIRST: usize = 8;

/// The page that is asked for, or as much of it as has room.
pub(super) async fn fill<T, F>(
    asked: PageRequest,
    read: impl Fn(PageRequest) -> F,
    bytes_of: impl Fn(&T) -> usize,
) -> Result<Page<T>, Problem>
where
    F: Future<Output = Result<Page<T>, Error>>,
{
    let mut all = Page { items: Vec::new(), next: asked.cursor, corrupt: Vec::new() };
    let (mut at_once, mut bytes) = (FIRST, 0);
    loop {
        let limit = at_once.min(asked.limit.saturating_sub(all.items.len() + all.corrupt.len()));
        let found = read(PageRequest { limit, cursor: all.next.take() }).await?;
        let short = found.items.len() + found.corrupt.len() < limit;
        bytes += found.items.iter().map(&bytes_of).sum::<usize>();
        all.items.extend(found.items);
        all.corrupt.extend(found.corrupt);
        all.next = found.next;
        let is_full = all.items.len() + all.corrupt.len() >= asked.limit || bytes >= MOST_BYTES;
        if short || is_full || all.next.is_none() {
            return Ok(all);
        }
        at_once = (MOST_BYTES - bytes).div_ceil(bytes / all.items.len().max(1) + 1).clamp(1, asked.limit);
    }
}
