//! The sizes of images and the pages of PDFs, from their headers. A file that was cut off is recognized, because a provider
//! would refuse the whole request.

use memchr::memmem;

use super::media_type::MediaType;

/// What a header says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: u32,
    pub(super) height: u32,
    /// 0 if unknown.
    pub(super) pages: u32,
}

const CUT_OFF: &str = "is cut off or damaged";

/// Reads the header of a file. The error says why the file can't be used, and follows "a PNG image that".
pub(super) fn read(media_type: MediaType, data: &[u8]) -> Result<Header, &'static str> {
    if media_type == MediaType::Pdf {
        return pdf(data);
    }
    let size = match media_type {
        MediaType::Png => png(data),
        MediaType::Jpeg => jpeg(data),
        MediaType::Gif => gif(data)?,
        MediaType::Webp => webp(data)?,
        MediaType::Pdf => None,
    };
    match size {
        Some((width, height)) if width > 0 && height > 0 => Ok(Header { width, height, pages: 0 }),
        _ => Err(CUT_OFF),
    }
}

/// The part of `data` with this length from `at`.
fn part<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The size, from the first chunk. The chunks are followed up to the last one.
fn png(data: &[u8]) -> Option<(u32, u32)> {
    const SIGNATURE: usize = 8;
    if part::<4>(data, SIGNATURE + 4)? != *b"IHDR" {
        return None;
    }
    let size = (u32::from_be_bytes(part(data, 16)?), u32::from_be_bytes(part(data, 20)?));
    let mut at = SIGNATURE;
    loop {
        let length = u32::from_be_bytes(part(data, at)?) as usize;
        let kind = part::<4>(data, at + 4)?;
        // Length, kind and checksum take 4 bytes each.
        at = at.checked_add(length)?.checked_add(12).filter(|end| *end <= data.len())?;
        if kind == *b"IEND" {
            return Some(size);
        }
    }
}

/// The size, from the frame header, which can come after large metadata.
fn jpeg(data: &[u8]) -> Option<(u32, u32)> {
    // The end marker; some writers add padding after it.
    memmem::rfind(data, &[0xff, 0xd9])?;
    let mut at = 2;
    loop {
        let [mark, kind] = part(data, at)?;
        if mark != 0xff {
            return None;
        }
        match kind {
            // Padding.
            0xff => at += 1,
            // A marker without a segment.
            0x01 | 0xd0..=0xd8 => at += 2,
            // A frame header, not a table of the same range.
            0xc0..=0xcf if !matches!(kind, 0xc4 | 0xc8 | 0xcc) => {
                let [height, width] = [part(data, at + 5)?, part(data, at + 7)?].map(u16::from_be_bytes);
                return Some((width.into(), height.into()));
            }
            // The image or its end, without a frame.
            0xd9 | 0xda => return None,
            _ => at = at.checked_add(2)?.checked_add(u16::from_be_bytes(part(data, at + 2)?).max(2).into())?,
        }
    }
}

fn gif(data: &[u8]) -> Result<Option<(u32, u32)>, &'static str> {
    if memmem::find(data, b"NETSCAPE2.0").is_some() {
        return Err("is animated");
    }
    // The trailer; some writers add padding after it.
    let is_complete = data.iter().rev().find(|byte| **byte != 0) == Some(&0x3b);
    let size = || {
        let [width, height] = [part(data, 6)?, part(data, 8)?].map(u16::from_le_bytes);
        Some((width.into(), height.into()))
    };
    Ok(size().filter(|_| is_complete))
}

fn webp(data: &[u8]) -> Result<Option<(u32, u32)>, &'static str> {
    const ANIMATED: u8 = 0x02;
    let is_extended = part::<4>(data, 12) == Some(*b"VP8X");
    if is_extended && data.get(20).is_some_and(|flags| flags & ANIMATED != 0) {
        return Err("is animated");
    }
    Ok(webp_size(data))
}

fn webp_size(data: &[u8]) -> Option<(u32, u32)> {
    let length = u32::from_le_bytes(part(data, 4)?) as usize;
    if length.checked_add(8)? > data.len() {
        return None;
    }
    match &part::<4>(data, 12)? {
        b"VP8 " => {
            let [width, height] = [part(data, 26)?, part(data, 28)?].map(|part| u16::from_le_bytes(part) & 0x3fff);
            Some((width.into(), height.into()))
        }
        b"VP8L" => {
            let bits = u32::from_le_bytes(part(data, 21)?);
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => {
            let number = |at| {
                let [low, middle, high] = part(data, at)?;
                Some(u32::from_le_bytes([low, middle, high, 0]) + 1)
            };
            Some((number(24)?, number(27)?))
        }
        _ => None,
    }
}

/// Counts the pages where they are plain objects. Those in compressed objects aren't seen.
fn pdf(data: &[u8]) -> Result<Header, &'static str> {
    if memmem::rfind(data, b"%%EOF").is_none() {
        return Err(CUT_OFF);
    }
    if memmem::find(data, b"/Encrypt").is_some() {
        return Err("is encrypted");
    }
    let is_page = |at: usize| {
        let value = data[at + b"/Type".len()..].trim_ascii_start();
        value.strip_prefix(b"/Page").is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric))
    };
    let pages = memmem::find_iter(data, b"/Type").filter(|at| is_page(*at)).count();
    Ok(Header { pages: u32::try_from(pages).unwrap_or(u32::MAX), ..Header::default() })
}
