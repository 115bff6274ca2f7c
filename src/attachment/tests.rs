use super::media_type::MAX_IMAGE_BYTES;
use super::*;

fn png(width: u32, height: u32) -> Vec<u8> {
    let chunk = |kind: &[u8], data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&length, kind, data, &[0; 4]].concat()
    };
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    [b"\x89PNG\r\n\x1a\n", &*chunk(b"IHDR", &[&*size, &[8, 6, 0, 0, 0]].concat()), &chunk(b"IEND", b"")].concat()
}

fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let size = [height.to_be_bytes(), width.to_be_bytes()].concat();
    // Metadata first, as cameras write it, which can contain another image.
    let metadata = [b"\xff\xe1\x00\x08", &b"\xff\xc0\x00\x11\x08\x00"[..]].concat();
    [b"\xff\xd8", &*metadata, b"\xff\xff\xc2\x00\x11\x08", &*size, b"\x03\xff\xda...\xff\xd9"].concat()
}

fn gif(width: u16, height: u16, more: &[u8]) -> Vec<u8> {
    [b"GIF89a", &width.to_le_bytes()[..], &height.to_le_bytes(), b"\x00\x00\x00", more, b"\x3b"].concat()
}

fn webp(kind: &[u8], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(4 + 8 + data.len()).unwrap().to_le_bytes();
    let size = u32::try_from(data.len()).unwrap().to_le_bytes();
    [b"RIFF", &length[..], b"WEBP", kind, &size, data].concat()
}

fn read(data: &[u8]) -> Result<Attachment, String> {
    Attachment::new(MediaType::detect(data).unwrap(), data.to_vec())
}

#[test]
fn sizes_are_read_from_headers() {
    let lossy = webp(b"VP8 ", b"\x00\x00\x00\x9d\x01\x2a\x40\x01\xf0\x00");
    let lossless = webp(b"VP8L", &[&b"\x2f"[..], &(319_u32 | 239 << 14).to_le_bytes()].concat());
    let extended = webp(b"VP8X", b"\x00\x00\x00\x00\x3f\x01\x00\xef\x00\x00");
    for (data, kind) in [
        (png(320, 240), MediaType::Png),
        (jpeg(320, 240), MediaType::Jpeg),
        (gif(320, 240, b""), MediaType::Gif),
        (lossy, MediaType::Webp),
        (lossless, MediaType::Webp),
        (extended, MediaType::Webp),
    ] {
        let found = read(&data).unwrap();
        assert_eq!((found.media_type, found.width, found.height), (kind, 320, 240));
        assert_eq!(found.describe(), format!("{}, 320 x 240 pixels, {} bytes", kind.noun(), data.len()));
        assert!(found.has_bytes(&data) && !found.has_bytes(&data[1..]));
        // A file that was cut off anywhere is never sent, and never a panic.
        for end in 0..data.len() - 4 {
            let Some(kind) = MediaType::detect(&data[..end]) else { continue };
            assert!(Attachment::new(kind, data[..end].to_vec()).is_err(), "{kind:?} {end}");
        }
    }
}

#[test]
fn pages_are_counted_where_they_are_plain() {
    let pdf = |body: &str| format!("%PDF-1.7\n{body}\n%%EOF\n");
    let body = "<</Type /Pages /Count 2>><</Type/Page>><< /Type  /Page/Parent 1 0 R>></Type/PageLabel>";
    let found = read(pdf(body).as_bytes()).unwrap();
    assert_eq!((found.pages, found.likely_pages()), (2, 2));
    assert!(found.describe().starts_with("PDF document, 2 pages, "), "{}", found.describe());
    let hidden = read(pdf(&"x".repeat(100_000)).as_bytes()).unwrap();
    assert_eq!((hidden.pages, hidden.likely_pages()), (0, 6));
    assert!(read(pdf("/Encrypt 5 0 R").as_bytes()).unwrap_err().contains("is encrypted"));
    assert!(read(pdf(&"/Type/Page ".repeat(101)).as_bytes()).unwrap_err().contains("with 101 pages"));
    assert!(read(b"%PDF-1.7\n").unwrap_err().contains("cut off or damaged"));
}

#[test]
fn what_providers_refuse_is_an_error() {
    for (data, part) in [
        (png(8_001, 1), "is a PNG image of 8001 x 1 pixels, and at most 8000 x 8000 can be sent"),
        (png(0, 1), "is a PNG image that is cut off or damaged"),
        (gif(1, 1, b"\x21\xff\x0bNETSCAPE2.0"), "is a GIF image that is animated"),
        (webp(b"VP8X", b"\x02\x00\x00\x00\x3f\x01\x00\xef\x00\x00"), "is a WebP image that is animated"),
        ([png(1, 1), vec![0; MAX_IMAGE_BYTES as usize]].concat(), "bytes, and at most 3900000 can be sent"),
    ] {
        let error = read(&data).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    for text in [&b"GIF89a is a format"[..], b"%PDF- is a format", b"RIFF", b"", b"\x00\x00"] {
        assert_eq!(MediaType::detect(text), None, "{text:?}");
    }
}

#[test]
fn a_conversation_has_room_for_some() {
    let one = read(&png(1, 1)).unwrap();
    let mut totals = AttachmentTotals::default();
    for _ in 0..MAX_COUNT {
        totals.try_add(&one).unwrap();
    }
    assert!(totals.try_add(&one).unwrap_err().contains("20 images and documents already"));
    let large = Attachment { bytes: 7_000_000, ..one };
    let mut totals = AttachmentTotals::default();
    totals.try_add(&large).unwrap();
    assert!(totals.try_add(&large).unwrap_err().contains("more than 12000000 bytes"));
    let long = Attachment { media_type: MediaType::Pdf, bytes: 1, pages: 60, ..large };
    let mut totals = AttachmentTotals::default();
    totals.try_add(&long).unwrap();
    assert!(totals.try_add(&long).unwrap_err().contains("more than 100 pages"));
}

#[test]
fn a_digest_of_a_record_leads_nowhere_else() {
    let one = read(&png(1, 1)).unwrap();
    assert_eq!(one.file_name().unwrap(), format!("attachments/{}.png", one.digest));
    for digest in ["../../etc/passwd", "", &"A".repeat(64), &"a".repeat(63)] {
        assert_eq!(Attachment { digest: digest.to_owned(), ..one.clone() }.file_name(), None, "{digest}");
    }
}
