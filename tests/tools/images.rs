//! Images and PDFs: what models get, what records keep, and what is refused.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::program::ProgramOutput;
use crate::support::record::RunFolder;
use crate::support::server::{Answer, Api, Checks, Request, ScriptedAgents, Server};
use crate::support::test_folder::TestFolder;

/// A whole image of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PDF: &[u8] = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj 3 0 \
obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\nxref\n0 1\n0000000000 65535 f \ntrailer<</Root 1 0 R>>\n%%EOF\n";

/// A model of each API that takes both.
const MODELS: [(&str, Api); 4] = [
    ("anthropic/claude-haiku-4-5", Api::Messages),
    ("openai/gpt-5.1", Api::Responses),
    ("openai-chat/gpt-5.1", Api::Chat),
    ("gemini/gemini-3.8-flash", Api::Gemini),
];

fn png() -> Vec<u8> {
    STANDARD.decode(PNG).unwrap()
}

/// An image with its own size, whose data no one decodes.
fn large_png(width: u32, height: u32, length: usize) -> Vec<u8> {
    let mut image = png();
    image[16..20].copy_from_slice(&width.to_be_bytes());
    image[20..24].copy_from_slice(&height.to_be_bytes());
    // A chunk for the rest, before the last one.
    let end = image.split_off(image.len() - 12);
    let rest = length.saturating_sub(image.len() + 24);
    image.extend(u32::try_from(rest).unwrap().to_be_bytes());
    image.extend(b"zzZz");
    image.extend(std::iter::repeat_n(b'x', rest + 4));
    image.extend(end);
    image
}

/// A job with an image as an input.
fn folder(model: &str) -> TestFolder {
    let folder = TestFolder::new();
    let job = format!(
        "model: {model}\ninputs: {{ shot: {{ type: image }} }}\nparent: {{ prompt: 'Look at {{{{ inputs.shot }}}}.', tools: [read_file] }}\n\
         limits: {{ tokens: 100000, cost_usd: 1 }}\n"
    );
    folder.write("job.yaml", job).write("pages/shot.png", png()).write("doc.pdf", PDF);
    folder
}

fn reads(files: &[&str]) -> Answer {
    Answer::calls(&files.iter().map(|file| ("read_file", json!({ "path": file }))).collect::<Vec<_>>())
}

fn run(folder: &TestFolder, server: &Server, more: &[&str]) -> ProgramOutput {
    let arguments = [&["run", "job.yaml", "--set", "shot=pages/shot.png"], more].concat();
    folder.legwork(&arguments).anthropic(server).openai(server).gemini(server).run()
}

/// Every object in a body that has the bytes of a file in it, without these.
fn files(body: &Value, found: &mut Vec<Value>) {
    match body {
        Value::Object(fields) => {
            let is_file = |text: &str| text.ends_with(PNG) || text.ends_with(&STANDARD.encode(PDF));
            if fields.values().any(|value| value.as_str().is_some_and(is_file)) {
                let shown = fields.iter().map(|(name, value)| match value.as_str() {
                    Some(text) if is_file(text) => {
                        (name.clone(), json!(text.split_once(',').map_or("", |(head, _)| head)))
                    }
                    _ => (name.clone(), value.clone()),
                });
                found.push(shown.collect::<serde_json::Map<_, _>>().into());
            }
            fields.values().for_each(|value| files(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| files(item, found)),
        _ => {}
    }
}

fn files_of(request: &Request) -> Vec<Value> {
    let mut found = Vec::new();
    files(request.raw_body(), &mut found);
    found
}

fn attachments(run: &RunFolder) -> Vec<String> {
    run.files().into_iter().filter(|name| name.starts_with("attachments/")).collect()
}

#[test]
fn a_model_gets_images_and_pdfs_over_every_api() {
    for (model, api) in MODELS {
        let folder = folder(model);
        let answers = [reads(&["pages/shot.png", "doc.pdf"]), Answer::text("Seen.")];
        let server = Server::start(ScriptedAgents::of(answers));
        let ended = run(&folder, &server, &[]);
        ended.assert_code(0).assert_stdout("Seen.\n");
        let requests = server.finish();
        let (image, pdf) = match api {
            Api::Messages => (
                json!({"type": "base64", "media_type": "image/png", "data": ""}),
                json!({"type": "base64", "media_type": "application/pdf", "data": ""}),
            ),
            Api::Responses => (
                json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64"}),
                json!({"type": "input_file", "filename": "x.pdf", "file_data": "data:application/pdf;base64"}),
            ),
            Api::Chat => (
                json!({"url": "data:image/png;base64"}),
                json!({"filename": "x.pdf", "file_data": "data:application/pdf;base64"}),
            ),
            Api::Gemini => {
                (json!({"mimeType": "image/png", "data": ""}), json!({"mimeType": "application/pdf", "data": ""}))
            }
        };
        assert_eq!(files_of(&requests[0]), std::slice::from_ref(&image), "{model}");
        let mut sent = files_of(&requests[1]);
        if let Some(name) = sent[2].get_mut("filename") {
            assert!(name.as_str().is_some_and(|name| name.len() == 16 && name.ends_with(".pdf")), "{name}");
            *name = json!("x.pdf");
        }
        assert_eq!(sent, [image.clone(), image, pdf], "{model}");
        let prompt = requests[0].prompt();
        let note = "[Attached for the input `shot`: `pages/shot.png`, PNG image, 1 x 1 pixels, 70 bytes]";
        assert!(prompt.starts_with("Look at pages/shot.png.") && prompt.contains(note), "{prompt}");
        if api != Api::Chat {
            let results = requests[1].results();
            assert_eq!(results[0].text, "[`pages/shot.png`: PNG image, 1 x 1 pixels, 70 bytes]");
            assert!(results[1].text.starts_with("[`doc.pdf`: PDF document, 1 page, "), "{results:?}");
        }
        let record = ended.run_folder();
        assert_eq!(attachments(&record).len(), 2, "one file for each content");
        record.assert_absent(PNG);
        for page in ["transcript.md", "report.html"] {
            assert!(record.file(page).contains("PNG image, 1 x 1 pixels, 70 bytes"), "{page}");
        }
    }
}

#[test]
fn results_of_older_gemini_models_are_followed_by_their_images() {
    let folder = folder("gemini/gemini-2.5-flash");
    let server = Server::start(ScriptedAgents::of([reads(&["pages/shot.png"]), Answer::text("Seen.")]));
    run(&folder, &server, &[]).assert_code(0);
    let requests = server.finish();
    let contents = requests[1].raw_body()["contents"].as_array().unwrap().clone();
    let [.., results, images] = contents.as_slice() else { panic!("{contents:?}") };
    assert_eq!(results["parts"][0]["functionResponse"].get("parts"), None);
    assert_eq!(images["parts"][0]["text"], "From the result of `read_file`:");
    assert_eq!(images["parts"][1]["inlineData"]["mimeType"], "image/png");
}

#[test]
fn a_model_that_takes_no_images_gets_a_note() {
    let folder = folder("openai-chat/some-model");
    let server = Server::start(ScriptedAgents::of([reads(&["pages/shot.png", "doc.pdf"]), Answer::text("Seen.")]));
    let ended = run(&folder, &server, &[]);
    ended.assert_code(0).assert_stderr_contains("warning[image-left-out]");
    let requests = server.finish();
    assert!(requests.iter().all(|request| files_of(request).is_empty()));
    assert!(requests[0].prompt().contains("[A PNG image was left out: this model doesn't take it.]"));
    let results = requests[1].results();
    assert!(results[0].text.contains("is an image (PNG, 70 bytes); only text can be returned"), "{results:?}");
    assert!(results[1].text.starts_with("     1\t%PDF-1.4"), "a PDF without NUL is shown as before: {results:?}");
}

#[test]
fn the_user_says_which_models_of_a_server_take_images() {
    let folder = folder("mine/qwen3-vl");
    let server = Server::start(|request: &Request| match request.turn() {
        0 => reads(&["pages/shot.png", "doc.pdf"]).number_calls(request.number),
        _ => Answer::text("Seen."),
    });
    let servers = format!(
        "[providers.mine]\napi = \"openai-chat\"\nbase_url = \"{}/v1\"\nkey_env = \"MINE_KEY\"\nimages = [\"qwen3-vl\"]\n",
        server.url()
    );
    std::fs::create_dir_all(folder.home().join(".config/legwork")).unwrap();
    std::fs::write(folder.home().join(".config/legwork/providers.toml"), servers).unwrap();
    let start = |model: &str| {
        let arguments = ["run", "job.yaml", "--set", "shot=pages/shot.png", "--model", model];
        folder.legwork(&arguments).env("MINE_KEY", crate::support::server::KEY).run()
    };
    start("mine/qwen3-vl").assert_code(0);
    start("mine/qwen3").assert_code(0);
    let counts: Vec<usize> = server.finish().iter().map(|request| files_of(request).len()).collect();
    assert_eq!(counts, [1, 2, 0, 0], "the PDF is left out");
}

#[test]
fn what_cant_be_sent_is_refused_before_anything_is_spent() {
    let folder = folder("anthropic/claude-haiku-4-5");
    folder
        .write("notes.png", "only text")
        .write("cut.png", &png()[..60])
        .write("wide.png", large_png(9_000, 10, 100))
        .write("heavy.png", large_png(10, 10, 4_000_000));
    std::os::unix::fs::symlink("/etc/hostname", folder.at("out.png")).unwrap();
    for (file, why) in [
        ("missing.png", "can't be read"),
        ("pages", "can't be read"),
        ("../secret.png", "leads out of the workspace"),
        ("out.png", "leads out of the workspace"),
        ("notes.png", "isn't a PNG, JPEG, GIF or WebP image or a PDF"),
        ("cut.png", "is cut off or damaged"),
        ("wide.png", "9000 x 10 pixels"),
        ("heavy.png", "at most 3900000 can be sent"),
        ("@missing.png", "can't be read"),
        ("@-", "can't be read from standard input"),
    ] {
        let ended = folder.legwork(&["run", "job.yaml", "--set", &format!("shot={file}")]).run();
        ended.assert_code(3).assert_stderr_contains(why).assert_stderr_contains("shot");
    }
    assert!(!folder.exists("runs"));
}

#[test]
fn a_dry_run_shows_what_is_attached() {
    let folder = folder("anthropic/claude-haiku-4-5");
    std::fs::write(folder.home().join("large.png"), large_png(2_000, 2_000, 1_000)).unwrap();
    let path = folder.home().join("large.png").display().to_string();
    let ended = folder.legwork(&["run", "job.yaml", "--dry-run", "--set", &format!("shot=@{path}")]).run();
    ended.assert_code(0);
    let line = ended.stdout.lines().find(|line| line.starts_with("attached")).unwrap();
    assert!(line.contains(&format!("shot = {path} (PNG image, 2000 x 2000 pixels, 1000 bytes, sha256 ")), "{line}");
    assert!(line.ends_with("; about 1568 tokens in each request)"), "{line}");
    folder.write("job.yaml", folder.read("job.yaml").replace(", cost_usd: 1", ""));
    let text = ["run", "job.yaml", "--dry-run", "--set", "shot=pages/shot.png", "--model", "openai-chat/x"];
    folder.legwork(&text).run().assert_code(0).assert_stdout_contains("left out: openai-chat/x doesn't take it");
}

#[test]
fn an_image_counts_as_tokens_and_not_as_its_bytes() {
    let folder = folder("anthropic/claude-haiku-4-5");
    folder.write("pages/shot.png", large_png(2_000, 2_000, 3_000_000));
    let server = Server::start(ScriptedAgents::of([Answer::text("Seen.")]));
    let ended = run(&folder, &server, &["--limit", "tokens=30000"]);
    ended.assert_code(0);
    let started = ended.run_folder().events().into_iter().find(|event| event["type"] == "request_started").unwrap();
    let reserved = started["data"]["reserved_tokens"].as_u64().unwrap();
    assert!((8_000 + 1_568..8_000 + 4_000).contains(&reserved), "{reserved}");
    assert_eq!(server.finish().len(), 1);
}

#[test]
fn a_conversation_has_at_most_twenty_images() {
    let folder = folder("anthropic/claude-haiku-4-5");
    let server = Server::start(ScriptedAgents::of([reads(&["pages/shot.png"; 21]), Answer::text("Seen.")]));
    run(&folder, &server, &[]).assert_code(0);
    let requests = server.finish();
    assert_eq!(files_of(&requests[1]).len(), 20);
    let is_left_out = |text: &String| text.contains("A PNG image was left out: the conversation has 20");
    assert_eq!(requests[1].results().into_iter().map(|result| result.text).filter(is_left_out).count(), 2);
}

#[test]
fn a_killed_run_sends_the_same_images_when_it_is_resumed() {
    let folder = folder("anthropic/claude-haiku-4-5");
    let server = Server::with(Checks::AllowRepeats, |request: &Request| match (request.turn(), request.number) {
        (0, _) => reads(&["doc.pdf"]).number_calls(0),
        (_, 1) => Answer::empty().hang(),
        _ => Answer::text("Seen."),
    });
    let arguments = ["run", "job.yaml", "--set", "shot=pages/shot.png"];
    let running = folder.legwork(&arguments).anthropic(&server).spawn();
    server.wait_for(2);
    running.signal(rustix::process::Signal::KILL);
    let record = running.wait().run_folder();
    // The record has its own copies.
    folder.write("pages/shot.png", "changed").write("doc.pdf", "changed");
    let kept = attachments(&record);
    assert_eq!(kept.len(), 2);
    for name in &kept {
        let path = record.path().join(name);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let bytes = std::fs::read(&path).unwrap();
        for broken in [Some(&b"other"[..]), None] {
            match broken {
                Some(other) => std::fs::write(&path, other).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            for command in ["resume", "replay"] {
                let refused = folder.legwork(&[command, "latest"]).anthropic(&server).run();
                let why = if broken.is_some() { "was changed" } else { "is missing" };
                refused.assert_code(2).assert_stderr_contains(name).assert_stderr_contains(why);
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
    folder.legwork(&["resume", "latest"]).anthropic(&server).run().assert_code(0).assert_stdout("Seen.\n");
    let requests = server.finish();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[1].bytes(), requests[2].bytes());
    assert_eq!(files_of(&requests[2]).len(), 2);
    folder.legwork(&["replay", "latest"]).run().assert_code(0);
}

#[test]
fn a_full_window_drops_old_images_first() {
    let folder = TestFolder::new();
    folder.write("a.png", large_png(1_500, 1_500, 1_000)).write("b.txt", "b\n".repeat(900));
    folder.write(
        "job.yaml",
        "model: { name: anthropic/claude-haiku-4-5, context: 7000 }\ncompaction: results\n\
         parent: { prompt: Look., max_tokens: 300, tools: [read_file] }\nlimits: { tokens: 1000000 }\n",
    );
    let server = Server::start(|request: &Request| match request.turn() {
        turn @ 0..=3 => {
            let file = if turn == 1 { "b.txt" } else { "a.png" };
            reads(&[file]).number_calls(request.number).usage(1_500 + 1_700 * turn as u64, 20)
        }
        _ => Answer::text("Seen."),
    });
    let ended = folder.legwork(&["run", "job.yaml"]).anthropic(&server).run();
    ended.assert_code(0).assert_stdout("Seen.\n");
    let record = ended.run_folder();
    let cut = record.events().into_iter().find(|event| event["type"] == "results_truncated").unwrap();
    let body = server.finish().last().unwrap().raw_body().to_string();
    assert!(body.contains("[The PNG image was removed to make room in the conversation.]"), "{cut}");
    assert!(body.contains("\"image/png\""), "the newest is still there");
    assert_eq!(cut["data"]["call_ids"].as_array().unwrap().len(), 1, "{cut}");
}

#[test]
fn rows_have_images_of_their_own() {
    let folder = folder("anthropic/claude-haiku-4-5");
    folder.write("b.png", large_png(7, 7, 200)).write("rows.csv", "id,shot\na,pages/shot.png\nb,b.png\n");
    folder.write("bad.csv", "id,shot\na,pages/shot.png\nb,missing.png\n");
    let bad = folder.legwork(&["map", "job.yaml", "--rows", "bad.csv", "--id", "id"]).run();
    bad.assert_code(3).assert_stderr_contains("bad.csv:3").assert_stderr_contains("can't be read");
    let server = Server::start(|_: &Request| Answer::text("Seen."));
    let ended = folder.legwork(&["map", "job.yaml", "--rows", "rows.csv", "--id", "id"]).anthropic(&server).run();
    ended.assert_code(0);
    let requests = server.finish();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.raw_body().to_string().contains("\"image/png\"")));
}

#[test]
fn messages_of_a_record_are_exported_without_the_bytes() {
    let folder = folder("anthropic/claude-haiku-4-5");
    let server = Server::start(ScriptedAgents::of([reads(&["doc.pdf"]), Answer::text("Seen.")]));
    run(&folder, &server, &[]).assert_code(0);
    drop(server);
    let exported = folder.legwork(&["export", "latest", "--format", "messages"]).run();
    exported.assert_code(0).assert_stdout_contains("its bytes are in the record");
    assert!(!exported.stdout.contains(PNG));
}

#[test]
fn a_fallback_gets_the_images_that_it_takes() {
    for (second, count) in [("openai/gpt-5.1", 2), ("gemini/gemini-3.8-flash", 2), ("openai-chat/some-model", 0)] {
        let folder = folder(&format!("{{ name: anthropic/claude-haiku-4-5, fallback: [{second}] }}"));
        folder.write("job.yaml", folder.read("job.yaml").replace(", cost_usd: 1", ""));
        let server = Server::with(Checks::AllowHandover, |request: &Request| {
            match (request.model() == "claude-haiku-4-5", request.turn()) {
                (true, 0) => reads(&["pages/shot.png"]),
                (true, _) => Answer::status(500).error("api_error", "Down."),
                (false, _) => Answer::text("Seen."),
            }
        });
        let start = folder.legwork(&["run", "job.yaml", "--set", "shot=pages/shot.png"]);
        let start = start.env("LEGWORK_RETRY_BASE_MS", "1").anthropic(&server).openai(&server).gemini(&server);
        start.run().assert_code(0).assert_stdout("Seen.\n");
        let requests = server.finish();
        let last = requests.last().unwrap();
        assert_eq!((last.model(), files_of(last).len()), (second.split_once('/').unwrap().1, count));
        let notes =
            last.raw_body().to_string().matches("[A PNG image was left out: this model doesn't take it.]").count();
        assert_eq!(notes, 2 - count, "{second}");
    }
}

/// A folder with an image that the server refuses, and the server.
fn refusing() -> (TestFolder, Server) {
    let folder = folder("anthropic/claude-haiku-4-5");
    folder.write("bad.png", large_png(5, 5, 500));
    let bad = STANDARD.encode(large_png(5, 5, 500));
    let server = Server::with(Checks::AllowRepeats, move |request: &Request| match request.turn() {
        0 => reads(&["bad.png", "doc.pdf"]).number_calls(0),
        _ if request.raw_body().to_string().contains(&bad) => {
            Answer::status(400).error("invalid_request_error", "Could not process image")
        }
        1 => reads(&["pages/shot.png"]).number_calls(1),
        _ => Answer::text("Seen."),
    });
    (folder, server)
}

#[test]
fn a_run_with_a_refused_image_resumes_from_any_event() {
    let (folder, server) = refusing();
    let whole = run(&folder, &server, &[]);
    let events = whole.assert_code(0).run_folder().events().len();
    assert!(events > 15, "{events}");
    drop(server);
    for number in 1..events {
        let (folder, server) = refusing();
        let arguments = ["run", "job.yaml", "--set", "shot=pages/shot.png"];
        let cut = folder.legwork(&arguments).env("LEGWORK_KILL_AFTER", number.to_string()).anthropic(&server).run();
        assert_eq!(cut.signal(), Some(9), "{number}");
        let ended = folder.legwork(&["resume", "latest"]).anthropic(&server).run();
        ended.assert_code(0).assert_stdout("Seen.\n");
        let files = files_of(server.finish().last().unwrap()).len();
        assert_eq!(files, 2, "after event {number}");
    }
}

#[test]
fn an_image_that_the_provider_refuses_doesnt_end_the_run() {
    let (folder, server) = refusing();
    let ended = run(&folder, &server, &[]);
    ended.assert_code(0).assert_stdout("Seen.\n");
    let requests = server.finish();
    let texts: Vec<String> = requests[2].results().into_iter().map(|result| result.text).collect();
    let removed = "image was removed because the request with it was refused";
    assert!(texts[0].contains(removed) && texts[1].contains("document was removed because"), "{texts:?}");
    let counts: Vec<usize> = requests.iter().map(|request| files_of(request).len()).collect();
    assert_eq!(counts, [1, 2, 1, 2], "{texts:?}");
    let removed = ended.run_folder().events().into_iter().filter(|event| event["type"] == "results_truncated").count();
    assert_eq!(removed, 1);
}
