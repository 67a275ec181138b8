//! Columns of text.

/// Lines with the columns below each other, two spaces between them.
pub(crate) fn render<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Breaks a text between words into lines of at most `width` characters; a
/// longer word has a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_break_between_words() {
        assert_eq!(super::wrap("a bc  def", 4), ["a bc", "def"]);
        assert_eq!(super::wrap("longword x", 4), ["longword", "x"]);
        assert!(super::wrap("", 4).is_empty());
    }

    #[test]
    fn columns_stand_below_each_other() {
        let row = |a: &str, b: &str, c: &str| [a.to_owned(), b.to_owned(), c.to_owned()];
        let rows = [row("memory", "used", ""), row("vmm", "PosixFd", "yes")];
        assert_eq!(super::render(&rows), "memory  used\nvmm     PosixFd  yes");
    }
}
