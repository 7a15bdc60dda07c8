//! A report: headings, sentences, charts and tables, in one HTML file.

use windlass_engine::OutputKind;

use super::{append, escape};

/// The mark in each page that says who made it. Windlass replaces only pages that have this mark.
const GENERATOR: &str = "<meta name=\"generator\" content=\"windlass\">";

/// The kind of output that a page is.
pub const PAGE: OutputKind = OutputKind {
    noun: "a page of charts made by Windlass",
    is_own: |beginning| {
        let mut parts = beginning.windows(GENERATOR.len());
        parts.any(|part| part == GENERATOR.as_bytes())
    },
    is_renamed: false,
};

/// A page under construction, from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

/// A table. The first column names what a row is about.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words, aligned to the left.
    Text(String),
    /// A number as it is shown, aligned to the right.
    Number(String),
}

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: String::new(),
        }
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        let text = escape(text);
        append(&mut self.body, format_args!("<h2>{text}</h2>\n"));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let text = escape(text);
        append(&mut self.body, format_args!("<p>{text}</p>\n"));
    }

    /// Adds a sentence that stands out.
    pub fn finding(&mut self, text: &str) {
        let text = escape(text);
        append(
            &mut self.body,
            format_args!("<p class=\"finding\">{text}</p>\n"),
        );
    }

    /// Adds key figures: a name and a value each.
    pub fn figures(&mut self, figures: &[(&str, String)]) {
        self.body += "<dl>";
        for (name, value) in figures {
            let (name, value) = (escape(name), escape(value));
            append(
                &mut self.body,
                format_args!("<div><dt>{name}</dt><dd>{value}</dd></div>"),
            );
        }
        self.body += "</dl>\n";
    }

    /// Adds a chart's figure.
    pub fn chart(&mut self, figure: &str) {
        self.body += figure;
    }

    /// Adds a table. If it is too wide for the window, it scrolls on its own.
    pub fn table(&mut self, table: &Table) {
        let out = &mut self.body;
        *out += "<div class=\"table\" tabindex=\"0\"><table><thead><tr>";
        let numbers = table.rows.first();
        for (index, column) in table.columns.iter().enumerate() {
            let cell = numbers.and_then(|row| row.get(index));
            let class = match cell {
                Some(Cell::Number(_)) => " class=\"number\"",
                _ => "",
            };
            let column = escape(column);
            append(out, format_args!("<th scope=\"col\"{class}>{column}</th>"));
        }
        *out += "</tr></thead><tbody>\n";
        for row in &table.rows {
            *out += "<tr>";
            for cell in row {
                match cell {
                    Cell::Text(text) => append(out, format_args!("<td>{}</td>", escape(text))),
                    Cell::Number(text) => {
                        append(
                            out,
                            format_args!("<td class=\"number\">{}</td>", escape(text)),
                        );
                    }
                }
            }
            *out += "</tr>\n";
        }
        *out += "</tbody></table></div>\n";
    }

    /// The page as a file.
    pub fn html(&self) -> String {
        let (title, body) = (escape(&self.title), &self.body);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n{GENERATOR}\n<title>{title}</title>\n\
             <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
        )
    }
}

const STYLE: &str = include_str!("style.css");
