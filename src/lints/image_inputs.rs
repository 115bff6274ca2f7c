//! An image is for a model that takes images.

use crate::diagnostic::{Diagnostic, rule};
use crate::job::InputType;

use super::{Lint, LintContext, models};

/// Checks jobs with images as inputs.
pub(super) const LINT: Lint = Lint { rules: &[rule!(Warning "image-left-out")], check };

fn check(subject: &LintContext<'_>, findings: &mut Vec<Diagnostic>) {
    let job = subject.job;
    let spec = &job.model;
    let Ok(model) = models::resolve(spec, &subject.user_config.servers) else { return };
    if model.media().images {
        return;
    }
    for (_, input) in job.inputs().filter(|(_, input)| input.kind.value == InputType::Image) {
        let place = input.kind.place();
        let message = format!("the parent gets a note instead of the image, because `{model}` takes no images");
        findings.push(
            Diagnostic::warning("image-left-out", place, message)
                .label(models::name_node(spec).place(), "the parent's model")
                .help("use a model that takes images; if this one does, set `images` for its server in providers.toml"),
        );
    }
}
