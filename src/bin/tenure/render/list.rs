//! Tables: as wide as the terminal, a row a line.

use comfy_table::{
    Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Table, Width, presets,
};

use super::Look;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// A name that is copied: never cut.
    Name(&'static str),
    /// A status: coloured, never cut.
    Status(&'static str),
    /// A number: aligned to the right, never cut.
    Number(&'static str),
    /// Something short: never cut.
    Short(&'static str),
    /// Text: cut where there is no room.
    Text(&'static str),
}

impl Column {
    const fn title(self) -> &'static str {
        match self {
            Self::Name(title)
            | Self::Status(title)
            | Self::Number(title)
            | Self::Short(title)
            | Self::Text(title) => title,
        }
    }
}

/// A table of these rows; a sentence instead if there are none.
pub(super) fn table<const N: usize>(
    look: &Look,
    columns: [Column; N],
    rows: Vec<[String; N]>,
    nothing: &str,
) -> String {
    if rows.is_empty() {
        return nothing.to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    if look.colours {
        table.enforce_styling();
    }
    if let Some(width) = look.width {
        table.set_width(width.max(40)).set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(columns.map(Column::title));
    for row in rows {
        let mut shown = Row::from(cells(&columns, row));
        shown.max_height(1);
        table.add_row(shown);
    }
    for (column, kind) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, PADDING));
        column.set_constraint(match kind {
            // Its title stays one: a table that is too wide by a little is read more easily than one letter a line.
            Column::Text(title) => ColumnConstraint::LowerBoundary(Width::Fixed(least(title))),
            _ => ColumnConstraint::ContentWidth,
        });
        if matches!(kind, Column::Number(_)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// What stands behind a column.
const PADDING: u16 = 2;

/// As wide as a text is at least.
fn least(title: &str) -> u16 {
    u16::try_from(title.len()).unwrap_or(u16::MAX).max(8).saturating_add(PADDING)
}

fn cells<const N: usize>(columns: &[Column; N], row: [String; N]) -> Vec<Cell> {
    let cell = |(column, content): (&Column, String)| {
        let colour = matches!(column, Column::Status(_)).then(|| colour(&content)).flatten();
        let content = if content.is_empty() { "-".to_owned() } else { super::one_line(&content, 400) };
        let cell = Cell::new(content);
        match colour {
            Some(colour) => cell.fg(colour),
            None => cell,
        }
    };
    columns.iter().zip(row).map(cell).collect()
}

/// What a status looks like.
pub(super) fn colour(status: &str) -> Option<Color> {
    match status {
        "completed" | "enabled" | "ok" | "ran" | "ready" => Some(Color::Green),
        "failed" | "timeout" | "lost" | "failing" | "fail" => Some(Color::Red),
        "running" | "claimed" => Some(Color::Cyan),
        "retrying" | "awaiting approval" | "awaiting_approval" | "interrupted" | "paused" | "warn" => {
            Some(Color::Yellow)
        }
        "cancelled" | "skipped" | "coalesced" => Some(Color::DarkGrey),
        _ => None,
    }
}

/// A word in the colour of what it says.
pub(super) fn painted(look: &Look, word: &str) -> String {
    let code = match colour(word).filter(|_| look.colours) {
        Some(Color::Green) => 32,
        Some(Color::Red) => 31,
        Some(Color::Cyan) => 36,
        Some(Color::Yellow) => 33,
        Some(_) => 90,
        None => return word.to_owned(),
    };
    format!("\x1b[{code}m{word}\x1b[0m")
}
