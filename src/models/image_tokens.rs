//! How many tokens an image takes, by the formulas that providers publish.

/// How many tokens an image takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageTokens {
    /// A token for each square patch, times a factor. Larger images are scaled down.
    Patches {
        /// The edge of a patch in pixels.
        edge: u32,
        /// The maximum number of patches.
        max: u64,
        /// The factor.
        percent: u64,
    },
    /// A base, and as many for each tile of 512 pixels after scaling to at most 2048 x 768.
    ScaledTiles {
        /// The base.
        base: u64,
        /// For each tile.
        tile: u64,
    },
    /// 258 for a small image, and for each tile of a larger one.
    CroppedTiles,
    /// At most this, whatever its size.
    PerImage(u64),
}

impl ImageTokens {
    /// The tokens of an image of this size in pixels.
    pub fn count(self, width: u32, height: u32) -> u64 {
        let (width, height) = (u64::from(width.max(1)), u64::from(height.max(1)));
        match self {
            Self::Patches { edge, max, percent } => {
                let edge = u64::from(edge);
                (width.div_ceil(edge) * height.div_ceil(edge)).min(max) * percent / 100
            }
            Self::ScaledTiles { base, tile } => {
                let (long, short) = (width.max(height) as f64, width.min(height) as f64);
                let scale = (2048.0 / long).min(1.0);
                let scale = scale * (768.0 / (short * scale)).min(1.0);
                let tiles = |edge: f64| (edge * scale / 512.0).ceil().max(1.0) as u64;
                base + tile * tiles(long) * tiles(short)
            }
            Self::CroppedTiles => {
                const TILE: u64 = 258;
                if width <= 384 && height <= 384 {
                    return TILE;
                }
                let edge = (width.min(height) * 2 / 3).clamp(256, 768);
                TILE * width.div_ceil(edge) * height.div_ceil(edge)
            }
            Self::PerImage(tokens) => tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::models::Capabilities;

    #[test]
    fn images_take_what_the_providers_publish() {
        let count = |vendor, model, (width, height)| {
            Capabilities::of(vendor, model).image_tokens.map(|formula| formula.count(width, height))
        };
        let small = (1000, 1000);
        let large = (6000, 4000);
        assert_eq!(count("anthropic", "claude-haiku-4-5", small), Some(36 * 36));
        assert_eq!(count("anthropic", "claude-haiku-4-5", large), Some(1_568));
        assert_eq!(count("anthropic", "claude-opus-4-8", large), Some(4_784));
        assert_eq!(count("anthropic", "claude-2.1", small), None);
        // The examples of <https://developers.openai.com/api/docs/guides/images-vision>.
        assert_eq!(count("openai", "gpt-4o", (1024, 1024)), Some(765));
        assert_eq!(count("openai", "gpt-4o", (2048, 4096)), Some(1_105));
        assert_eq!(count("openai", "gpt-5", (1024, 1024)), Some(70 + 4 * 140));
        assert_eq!(count("openai", "gpt-5.5", (1024, 1024)), Some(32 * 32));
        assert_eq!(count("openai", "gpt-5-mini", (1024, 1024)), Some(1_024 * 246 / 100));
        assert_eq!(count("openai", "o3", (1024, 1024)), Some(75 + 4 * 150));
        assert_eq!(count("openai", "o3-mini", small), None);
        assert_eq!(count("openai", "gpt-oss-120b", small), None);
        assert_eq!(count("openai", "gpt-3.5-turbo", small), None);
        assert_eq!(count("google", "gemini-2.5-pro", (300, 200)), Some(258));
        // The example of <https://ai.google.dev/gemini-api/docs/image-understanding>.
        assert_eq!(count("google", "gemini-2.5-pro", (960, 540)), Some(6 * 258));
        assert_eq!(count("google", "gemini-3.5-flash", large), Some(1_120));
        assert_eq!(count("google", "gemma-4-31b-it", small), None);
    }
}
