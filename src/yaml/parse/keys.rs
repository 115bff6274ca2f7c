//! Checks the keys of mappings.

use std::collections::HashMap;
use std::ops::Range;

use super::{Content, Diagnostic, Scalar, SourceSpan, Style, TreeBuilder, excerpt};

impl TreeBuilder<'_> {
    /// The entries of a mapping with a valid key.
    pub(super) fn mapping(&mut self, items: &[u32], span: &Range<usize>) -> Content {
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(items.len() / 2);
        let mut first: HashMap<&str, u32> = HashMap::with_capacity(items.len() / 2);
        let mut wrong = Vec::new();
        let mut holds_template = false;
        for (key, value) in items.chunks_exact(2).map(|pair| (pair[0], pair[1])) {
            let key_span = self.nodes[key as usize].span.clone();
            let place = self.place(key_span.clone());
            let mut target = key;
            while let Content::Alias(next) = self.nodes[target as usize].content {
                target = next;
            }
            match &self.nodes[target as usize].content {
                Content::Invalid => {}
                Content::Scalar { text, style: Style::Plain, value: Scalar::String } if &**text == "<<" => wrong.push(
                    Diagnostic::error("merge-key", place, "merge keys (`<<`) are not part of YAML 1.2")
                        .help("write the keys out, or use an alias (`*name`) for a whole value"),
                ),
                Content::Scalar { text, .. } => match first.get(&**text) {
                    None => {
                        first.insert(text, key);
                        pairs.push((key, value));
                    }
                    Some(earlier) => {
                        let earlier = self.place(self.nodes[*earlier as usize].span.clone());
                        let message = format!("key `{}` is set twice in this mapping", excerpt(text));
                        wrong.push(
                            Diagnostic::error("duplicate-key", place, message)
                                .label(earlier, "first set here")
                                .help("remove one of the two"),
                        );
                    }
                },
                Content::Mapping(_) if self.text[span.clone()].starts_with("{{") => {
                    holds_template = true;
                    let place = self.place(span.clone());
                    wrong.push(template_without_quotes(place));
                }
                _ => wrong.push(
                    Diagnostic::error("wrong-type", place, "a key must be a scalar")
                        .help("use a single word as the key, in quotes if it starts with a bracket"),
                ),
            }
        }
        for finding in wrong {
            self.found.push(finding);
        }
        if holds_template { Content::Invalid } else { Content::Mapping(pairs.into()) }
    }
}

fn template_without_quotes(place: SourceSpan) -> Diagnostic {
    let written = place.source.text[place.range.clone()].to_owned();
    let finding = Diagnostic::error("yaml-syntax", place, "a value that starts with `{{` needs quotes")
        .help("without quotes, `{` starts a mapping");
    if written.contains(['"', '\\', '\n', '\r']) { finding } else { finding.replace_with(format!("\"{written}\"")) }
}
