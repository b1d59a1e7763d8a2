//! A page of a listing in the making, in whatever store: what is said of its size and its cursor, and when it is full.

use super::{Page, PageRequest};

/// Why a page cannot be made as it was asked for: what was asked makes no sense.
#[derive(Debug)]
pub(super) struct InvalidPage(pub(super) String);

/// What a store says that could not do something, of which a page has to tell a record that cannot be read: that is
/// named on the page, and the others are served.
pub(super) trait Unreadable: Sized {
    /// Why the record cannot be read; itself if it is another fault.
    fn unreadable(self) -> Result<String, Self>;
}

/// A page in the making: one entry more than it holds is looked for, to know whether it is the last.
pub(super) struct Pager<T> {
    pub(super) page: Page<T>,
    limit: usize,
    last: String,
}

impl<T> Pager<T> {
    pub(super) fn new(limit: usize) -> Result<Self, InvalidPage> {
        if limit == 0 {
            return Err(InvalidPage("a page of 0 entries; ask for at least 1".to_owned()));
        }
        let page = Page { items: Vec::new(), next: None, corrupt: Vec::new() };
        Ok(Self { page, limit, last: String::new() })
    }

    /// Takes an entry; answers whether there is room for more.
    pub(super) fn take<F: Unreadable>(
        &mut self,
        name: String,
        cursor: String,
        entry: Result<T, F>,
    ) -> Result<bool, F> {
        if self.more() == 1 {
            self.page.next = Some(std::mem::take(&mut self.last));
            return Ok(false);
        }
        match entry {
            Ok(entry) => self.page.items.push(entry),
            Err(fault) => self.page.corrupt.push((name, fault.unreadable()?)),
        }
        self.last = cursor;
        Ok(true)
    }

    /// How many more are looked for: what is left of the page, and one beyond it.
    pub(super) fn more(&self) -> usize {
        let taken = self.page.items.len() + self.page.corrupt.len();
        self.limit.saturating_sub(taken).saturating_add(1)
    }
}

/// What stands behind the letter of this listing in a cursor; nothing if there is none.
pub(super) fn cursor<T>(
    request: &PageRequest,
    letter: char,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, InvalidPage> {
    let Some(cursor) = &request.cursor else { return Ok(None) };
    let place = cursor.strip_prefix(letter).and_then(parse);
    place.map(Some).ok_or_else(|| {
        let shown: String = cursor.chars().take(40).collect();
        InvalidPage(format!("{shown:?} is no cursor of this listing; begin without one"))
    })
}

/// The number behind the letter: where a listing begins that goes down from the newest.
pub(super) fn below(request: &PageRequest, letter: char) -> Result<i64, InvalidPage> {
    Ok(cursor(request, letter, |number| number.parse().ok())?.unwrap_or(i64::MAX))
}
