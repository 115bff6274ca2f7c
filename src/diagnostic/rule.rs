//! Rules: the codes of findings.

use super::Severity;

/// All findings of one code. Made by `rule!`, from a page in `src/explained`.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The stable name, such as `unknown-tool`.
    pub code: &'static str,
    /// The severity of its findings.
    pub severity: Severity,
    /// The page that explains it, Markdown: a paragraph, then the sections `Bad` and `Good` with an example in each.
    pub page: &'static str,
}

impl Rule {
    /// What it is about: the page's first paragraph, on one line.
    pub fn summary(&self) -> String {
        let paragraph = self.page.split("\n\n").next().unwrap_or_default();
        paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// An example with such a finding: the code block below `## Bad`. Absent if no text can show it.
    pub fn bad_example(&self) -> Option<&'static str> {
        self.example("## Bad")
    }

    /// An example without such a finding: the code block below `## Good`.
    pub fn good_example(&self) -> Option<&'static str> {
        self.example("## Good")
    }

    fn example(&self, heading: &str) -> Option<&'static str> {
        let section = self.page.split_once(heading)?.1.split("\n## ").next()?;
        let block = section.split_once("```")?.1.split_once('\n')?.1;
        Some(block.split_once("```")?.0)
    }
}

/// A [`Rule`] with the page of its code: `rule!(Error "unknown-tool")`.
macro_rules! rule {
    ($severity:ident $code:literal) => {
        $crate::diagnostic::Rule {
            code: $code,
            severity: $crate::diagnostic::Severity::$severity,
            page: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/explained/", $code, ".md")),
        }
    };
}

pub(crate) use rule;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_summary_and_examples() {
        let page = "Two words,\non two lines.\n\nMore.\n\n## Bad\n\n```yaml\na: 1\n```\n\n## Good\n\nText.\n\n```yaml\nb: 2\nc: 3\n```\n";
        let rule = Rule { code: "x", severity: Severity::Error, page };
        assert_eq!(rule.summary(), "Two words, on two lines.");
        assert_eq!((rule.bad_example(), rule.good_example()), (Some("a: 1\n"), Some("b: 2\nc: 3\n")));
        let rule = Rule { page: "Only words.\n\n## Good\n\n```\nx\n```\n", ..rule };
        assert_eq!((rule.bad_example(), rule.good_example()), (None, Some("x\n")));
    }
}
