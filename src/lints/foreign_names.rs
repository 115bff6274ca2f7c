//! Keys and tools of other programs that have another form here, or no equivalent: goose recipes, `claude -p`, codex, GitHub
//! workflows and agentic workflows, Docker Agent, mini-swe-agent, Archon, and libraries. Those that have only another name
//! are in [`super::key_aliases`] and [`super::tool_aliases`].

use super::key_aliases::fold_key;

/// What to write instead, and the names, folded.
type ForeignNames = (&'static str, &'static [&'static str]);

/// The keys.
const KEYS: &[ForeignNames] = &[
    (
        "what a run proposes to a forge is declared under `outputs`: `outputs: { comment: {} }`",
        &["safeoutputs", "pullrequest", "createpullrequest", "addcomment", "createissue", "addlabels"],
    ),
    // Models and providers.
    (
        "this option doesn't exist: the provider's default is used; remove it",
        &[
            "toolchoice",
            "paralleltoolcalls",
            "logprobs",
            "bestof",
            "n",
            "betas",
            "jsonmode",
            "stream",
            "streaming",
            "includepartialmessages",
            "topp",
            "topk",
            "frequencypenalty",
            "presencepenalty",
            "seed",
            "modelverbosity",
            "modelreasoningsummary",
        ],
    ),
    (
        "the model is set with `model`, limits with `limits`",
        &[
            "settings",
            "modelsettings",
            "generatecontentconfig",
            "reviewmodel",
            "functioncallingllm",
            "modelkwargs",
            "modelkind",
        ],
    ),
    (
        "the provider is part of the model's name: `model: PROVIDER/NAME`",
        &["provider", "providers", "modelprovider", "gooseprovider", "models"],
    ),
    (
        "legwork runs the agents itself: write only the model, `model: PROVIDER/NAME`",
        &["engine", "goosemodel", "runner"],
    ),
    (
        "write the models to use after it as an option of the model: `model: { name: PROVIDER/NAME, fallback: [PROVIDER/NAME] }`",
        &["fallbackmodel", "fallbackmodels", "fallbacks"],
    ),
    (
        "a job file never holds a key: set it in the environment when you start the job",
        &["githubtoken", "vault", "keyvault", "apikey", "apikeyhelper"],
    ),
    (
        "a job can't name an endpoint: set it in the environment when you start the job",
        &["modelproviders", "baseurl", "endpoint", "apibase"],
    ),
    (
        "an agent thinks as `thinking` of its model says: `model: { name: PROVIDER/NAME, thinking: low }`",
        &["budgettokens", "thinkingbudget", "maxthinkingtokens", "planning", "planner", "maxreasoningattempts"],
    ),
    (
        "how much a run may read and write is set by `limits: { tokens: 2000000 }`, how long an answer may be by `max_tokens` of an agent",
        &["maxinputtokens"],
    ),
    (
        "how often a run may ask is decided by the provider: legwork waits as its answers say, and `limits` holds for the whole run",
        &["maxrpm", "ratelimits"],
    ),
    (
        "`network: none` is the default; `network: { allow: [HOST] }` lets commands reach hosts, and `network: open` everything",
        &["firewall"],
    ),
    ("bash is a tool of an agent: `tools: [bash]`", &["shell"]),
    (
        "a run leaves its record in `runs/`, or in `--out DIR`; what the job is to write is said in its prompt",
        &["outputfile", "outputdir", "logfile"],
    ),
    (
        "an image or a PDF is an input: `inputs: { NAME: { type: image } }`; other files are read by the agent",
        &["images", "attachments", "imageurl"],
    ),
    (
        "to run the job for many items, write them into a rows file and use `legwork map JOB --rows FILE`",
        &["dataset", "data"],
    ),
    // Permissions and the sandbox.
    (
        "there are no permission prompts: an agent has exactly its `tools`",
        &[
            "requestpermissions",
            "manualapproval",
            "canusetool",
            "humaninput",
            "autoaccept",
            "confirmationmode",
            "security",
            "yolomode",
            "permissionmode",
            "permissions",
            "permission",
            "approvalpolicy",
            "approval",
            "approvals",
            "askforapproval",
            "interactive",
            "confirmexit",
            "defaultmode",
            "dangerouslyskippermissions",
            "yolo",
            "trustedtools",
            "autoapprove",
        ],
    ),
    (
        "an agent has exactly its `tools`: leave out the others",
        &["disallowedtools", "deniedtools", "excludetools", "excludedtools", "deny", "toolaliases"],
    ),
    (
        "a job can't change its sandbox: use `--sandbox` when you start it",
        &[
            "codeexecutionmode",
            "codeexecutor",
            "runtime",
            "sandbox",
            "sandboxmode",
            "sandboxworkspacewrite",
            "container",
            "image",
            "environmentclass",
            "isolation",
            "runtimes",
        ],
    ),
    (
        "commands can write to the workspace only; use `--allow-write DIR` when you start the job to open more",
        &["writableroots", "additionaldirectories", "adddir"],
    ),
    // Tools and servers.
    (
        "tool servers are declared under `mcp`",
        &[
            "bashtools",
            "strictmcpconfig",
            "extensions",
            "mcpscripts",
            "safeinputs",
            "plugins",
            "enabledplugins",
            "enableallprojectmcpservers",
        ],
    ),
    (
        "there is no web tool: with `network: open`, `bash` can run `curl`; servers are declared under `mcp`",
        &["websearch", "webfetch", "fetch", "codemodetools", "rag"],
    ),
    // Inputs.
    ("an input without a `default` is required; remove this key", &["required", "requirement"]),
    ("an input with a `default` is optional; write one instead of this key", &["optional"]),
    ("write the input's name as its key: `inputs: { NAME: { type: string } }`", &["key"]),
    // What starts a job, and what is around it.
    (
        "a job has no triggers and no schedule: cron or a CI workflow starts it with `legwork run`",
        &[
            "on",
            "trigger",
            "triggers",
            "schedule",
            "cron",
            "event",
            "events",
            "triggerrule",
            "slashcommand",
            "applyto",
            "paths",
            "stopafter",
        ],
    ),
    (
        "this belongs to the workflow that starts the job, such as one of GitHub Actions",
        &[
            "runsonslim",
            "app",
            "lockforagent",
            "checkforupdates",
            "excludeagent",
            "target",
            "queue",
            "deadline",
            "priority",
            "owner",
            "assignee",
            "assignto",
            "runson",
            "jobs",
            "needs",
            "strategy",
            "matrix",
            "services",
            "roles",
            "bots",
            "uses",
            "with",
            "defaults",
            "continueonerror",
            "runname",
            "checkout",
            "trackerid",
            "labels",
            "ratelimit",
            "if",
        ],
    ),
    (
        "commands that run before the agent are `before: [{ name: NAME, run: COMMAND }]`; commands that must pass at the end are \
         `checks`",
        &["steps", "prerun", "presteps", "setup", "beforescript", "pre"],
    ),
    (
        "a job has no graph of steps: commands that run before the agent are `before`; commands that must pass at the end are `checks`",
        &["graph", "edges", "startnode", "poststeps", "nodes", "dependson", "stages", "tasks", "workflow", "pipeline"],
    ),
    (
        "one start runs the job once: to run it for many items, use `legwork map`; to let the model repair what `checks` find, use `repairs`",
        &["while", "loop", "until", "foreach", "repeat", "maxloops"],
    ),
    (
        "what a run proposes to a forge is declared under `outputs`, and `legwork publish` applies it; for other services, there is \
         the kind `command`, and for data `result`",
        &[
            "staged",
            "branch",
            "basebranch",
            "commitmessage",
            "upload",
            "artifacts",
            "slack",
            "email",
            "webhook",
            "threatdetection",
            "commit",
        ],
    ),
    (
        "write `limits: { wall_clock: 20m }`, with a unit",
        &["maxexecutiontime", "timeoutminutes", "timeoutseconds", "timeoutms", "idletimeout", "walltimelimitseconds"],
    ),
    (
        "at most so many subagents run at once: `limits: { parallel_subagents: 4 }`; the rows of a map: `legwork map --jobs 4`",
        &["maxconcurrency", "maxparallelism", "maxthreads"],
    ),
    // What is kept, and what is done at certain times.
    (
        "commands that must pass are `checks`; with `repairs: 2` the model gets their output and tries again; failed requests to the \
         provider are repeated without a key",
        &[
            "guardrail",
            "inputguardrails",
            "outputguardrails",
            "evaluation",
            "judge",
            "grader",
            "rubric",
            "metrics",
            "score",
            "verify",
            "verification",
            "validators",
            "validation",
            "acceptance",
            "acceptancecriteria",
            "assertions",
            "retry",
            "retries",
            "maxretries",
            "onfailure",
            "retrypolicy",
            "maxattempts",
            "successcriteria",
            "guardrails",
        ],
    ),
    (
        "there are no hooks: commands that must pass at the end are `checks`; anything else belongs in the script or workflow that \
         starts the job",
        &[
            "post",
            "finally",
            "onerror",
            "oncomplete",
            "stepcallback",
            "callback",
            "postrun",
            "teardown",
            "cleanup",
            "ontimeout",
            "beforeagentcallback",
            "aftermodelcallback",
            "hooks",
            "hook",
            "notify",
            "notifications",
            "after",
            "afterscript",
            "statusline",
            "callbacks",
            "onsuccess",
            "lintcmd",
            "testcmd",
        ],
    ),
    (
        "nothing is remembered between runs: let the agent write a file of the workspace, and name it in `context`",
        &[
            "enablefilecheckpointing",
            "knowledgesources",
            "embedder",
            "continue",
            "forksession",
            "checkpointing",
            "memory",
            "cachememory",
            "repomemory",
            "knowledge",
            "history",
            "session",
            "sessions",
            "persistsession",
            "freshcontext",
            "checkpoint",
            "checkpointer",
            "cache",
        ],
    ),
    (
        "files for the system prompt are named in `context`, skills in `skills`; nothing is found by itself",
        &[
            "rule",
            "files",
            "modelinstructionsfile",
            "settingsources",
            "documents",
            "contextfilename",
            "imports",
            "rules",
            "resources",
            "projectdocmaxbytes",
            "addpromptfiles",
            "instructionfile",
            "claudemd",
            "agentsmd",
            "globs",
            "alwaysapply",
        ],
    ),
    (
        "variables that commands may see are listed in `env: [NAME]`; their values come from the environment",
        &["shellenvironmentpolicy", "envfile", "dotenv"],
    ),
    (
        "a secret is an input, `inputs: { NAME: { type: string, secret: true } }`, or the name of a variable in `env`",
        &["secretmasking", "secrets", "credentials"],
    ),
    (
        "date and folder are variables of templates: `{{ run.date }}`, `{{ workspace }}`",
        &["injectdate", "dateformat", "adddate", "addenvironmentinfo"],
    ),
    (
        "when a conversation outgrows the window is decided by `compaction`",
        &[
            "respectcontextwindow",
            "truncation",
            "summarization",
            "includecontents",
            "maxhistory",
            "slidingwindow",
            "window",
            "condenser",
            "numhistoryitems",
            "autocompact",
            "compact",
            "contextmanagement",
            "summarize",
        ],
    ),
    (
        "a subagent hands back its summary: there are no handoffs; declare it under `subagents`, and give the parent `task`",
        &[
            "subagenttype",
            "process",
            "handoffdescription",
            "asyncexecution",
            "handoffs",
            "handoff",
            "allowdelegation",
            "crew",
            "team",
            "delegates",
        ],
    ),
    (
        "write it into `system`",
        &[
            "personality",
            "style",
            "tone",
            "language",
            "locale",
            "globalinstruction",
            "usesystemprompt",
            "examples",
            "fewshot",
            "samples",
            "role",
            "goal",
            "backstory",
        ],
    ),
    (
        "the data that the job ends with is declared by `result: { schema: ... }`",
        &[
            "outputkey",
            "format",
            "markdown",
            "outputschema",
            "jsonschema",
            "resultschema",
            "outputformat",
            "structuredoutput",
            "outputtype",
            "expectedoutput",
            "responseformat",
            "outputjson",
            "outputpydantic",
        ],
    ),
    ("a prompt is under `parent`; to run a command at the end, use `checks`", &["command", "run", "script"]),
    ("write one job file for each", &["commands", "profiles", "profile", "modes", "mode", "prompts"]),
    ("a file is one job: write what is below this key at the top level", &["recipe", "job", "spec"]),
    (
        "a job file is complete, and takes nothing from others; prompts can share files: `{ file: PATH }`, `{% include %}`",
        &["extends", "base", "inherits", "include", "includes"],
    ),
    (
        "what ends a run is set by `limits`, what ends an agent by `max_turns`",
        &["stopconditions", "stopcondition", "terminationcondition"],
    ),
    ("print the plan with `legwork run JOB --dry-run`", &["dryrun"]),
    (
        "test cases of a job are run by `legwork test`; commands that must pass in a run are `checks`",
        &["tests", "evals"],
    ),
    (
        "use `--workspace` when you start the job; the default is the current folder",
        &["workspacebase", "workspace", "cwd", "workingdirectory", "workdir", "root", "worktree", "repo"],
    ),
    (
        "a job is started without a person, so it has nothing for one; remove it",
        &[
            "activities",
            "welcomemessage",
            "conversationstarters",
            "initialprompt",
            "welcomeprompt",
            "hidden",
            "tui",
            "infer",
            "background",
            "userinvocable",
            "disablemodelinvocation",
            "argumenthint",
            "outputstyle",
            "theme",
            "icon",
        ],
    ),
    (
        "this is no part of a job; remove it",
        &[
            "versionrequired",
            "log",
            "executable",
            "pathtoclaudecodeexecutable",
            "private",
            "resettoolchoice",
            "logging",
            "loglevel",
            "debug",
            "version",
            "color",
            "author",
            "metadata",
            "tags",
            "source",
            "verbose",
            "strict",
            "features",
            "observability",
            "telemetry",
            "license",
            "apiversion",
        ],
    ),
    (
        "a job runs if it is started, unless `skip_if` is true; a check may have `when`",
        &["skip", "when", "condition", "enabled", "disabled", "disable"],
    ),
];

/// What to do about a key of another program.
pub(super) fn help_for_key(name: &str) -> Option<&'static str> {
    help_in(KEYS, name)
}

/// The tools.
const TOOLS: &[ForeignNames] = &[
    (
        "there is no web tool; with `network: open`, `bash` can run `curl`",
        &[
            "fetch",
            "websearchpreview",
            "opensimplebrowser",
            "web",
            "webfetch",
            "websearch",
            "googlewebsearch",
            "urlfetch",
            "fetchurl",
            "readurl",
            "http",
            "httprequest",
            "curl",
            "browser",
            "browseraction",
            "computerusepreview",
            "computeruse",
            "computer",
            "playwright",
            "searchweb",
            "openurl",
            "fetchwebpage",
            "wget",
            "browsertoolset",
            "computercontrollerwebscrape",
        ],
    ),
    (
        "nobody is asked during a run; remove it",
        &[
            "requestpermissions",
            "planmoderespond",
            "messageuser",
            "senduserinput",
            "sendusermessage",
            "reportintent",
            "pushnotification",
            "askuser",
            "askuserquestion",
            "askfollowupquestion",
            "userprompt",
            "requestuserinput",
            "exitplanmode",
            "enterplanmode",
            "planmode",
            "clarify",
            "human",
            "question",
            "planenter",
            "planexit",
            "switchmode",
            "vscodeaskquestions",
        ],
    ),
    (
        "a model thinks without a tool: `model: { name: PROVIDER/NAME, thinking: low }`",
        &["think", "thinking", "sequentialthinking"],
    ),
    (
        "nothing is remembered between runs: write a file of the workspace, and name it in `context`",
        &[
            "storememory",
            "repomemory",
            "chatrecall",
            "memory",
            "savememory",
            "remember",
            "recall",
            "cachememory",
            "updatememory",
        ],
    ),
    (
        "a command ends with its call, so there is nothing to read or stop; remove it",
        &[
            "stopbash",
            "readbash",
            "writebash",
            "wait",
            "sleep",
            "terminallastcommand",
            "terminalselection",
            "bashoutput",
            "killshell",
            "killbash",
            "writestdin",
            "readterminal",
            "taskoutput",
            "taskstop",
            "getterminaloutput",
            "runbackgroundjob",
            "monitor",
        ],
    ),
    (
        "name its tools: `read_file`, `write_file`, `edit_file`, `glob`, `grep`",
        &["filesystem", "files", "fs", "file", "coding", "codebase"],
    ),
    (
        "name its tools: `bash`, `read_file`, `write_file`, `edit_file`",
        &["developer", "developershell", "developertexteditor", "computercontroller"],
    ),
    (
        "tools of a server: declare it under `mcp`, and write `- { mcp: SERVER, allow: [TOOL] }`",
        &[
            "githubmcpserver",
            "listmcpresourcestool",
            "readmcpresourcetool",
            "loadmcpdocumentation",
            "serena",
            "openapi",
            "sql",
            "sqlquery",
            "query",
            "database",
            "safeinputs",
            "fetchpullrequest",
            "hostedtool",
            "idegetdiagnostics",
            "github",
            "gitlab",
            "slack",
            "jira",
            "linear",
            "mcp",
            "mcpservers",
            "agenticworkflows",
            "githubrepo",
            "docker",
            "postgres",
            "sqlite",
            "lsp",
            "lsphover",
            "a2a",
            "api",
            "listmcpresources",
            "readmcpresource",
            "usemcptool",
            "accessmcpresource",
        ],
    ),
    (
        "an answer is the last text, without a tool; data is declared by `result: { schema: ... }`",
        &[
            "recipefinaloutput",
            "finish",
            "done",
            "finalanswer",
            "attemptcompletion",
            "complete",
            "completetask",
            "submit",
            "structuredoutput",
            "finaloutput",
        ],
    ),
    (
        "what a run proposes to a forge is declared under `outputs`, and agents list it: `- { output: [comment] }`",
        &["outputs", "safeoutputs", "createissue", "createpullrequest", "addcomment", "addlabels", "comment", "issue"],
    ),
    (
        "declare an output of the kind `command`, and list it: `- { output: [notify] }`",
        &["sendemail", "sendslack", "email"],
    ),
    (
        "files are deleted, moved and copied by commands: use `bash`",
        &[
            "removefile",
            "makedirectory",
            "deletefile",
            "delete",
            "movefile",
            "copyfile",
            "renamefile",
            "createdirectory",
            "mkdir",
            "rm",
            "mv",
            "cp",
            "touch",
        ],
    ),
    (
        "a program is run by a command: write `bash`, or only this one: `bash: { allow: [\"PROGRAM *\"] }`",
        &[
            "node",
            "npm",
            "npx",
            "pip",
            "uv",
            "cargo",
            "make",
            "jq",
            "sed",
            "awk",
            "head",
            "tail",
            "diff",
            "gh",
            "script",
            "runtasks",
            "runnotebooks",
            "findtestfiles",
            "testsynctool",
            "date",
            "time",
            "calculator",
            "math",
            "createnewworkspace",
            "runtests",
            "testfailure",
            "lint",
            "format",
            "test",
            "build",
            "readlints",
            "geterrors",
            "problems",
            "gitdiff",
            "gitstatus",
            "gitcommit",
            "gitlog",
            "gitadd",
            "getchangedfiles",
            "changes",
            "runnotebookcell",
            "jsrepl",
        ],
    ),
    (
        "search with `grep` and `glob`, or let a subagent do it with `task`",
        &[
            "listcodeusages",
            "searchresults",
            "semanticsearch",
            "codesearch",
            "symbolsearch",
            "usages",
            "listcodedefinitionnames",
            "codebaseinvestigator",
            "analyze",
            "astgrep",
        ],
    ),
    (
        "skills are declared under `skills`",
        &[
            "skill",
            "useskill",
            "loadskill",
            "runslashcommand",
            "fetchinstructions",
            "fetchrules",
            "newrule",
            "activateskill",
            "invokeskill",
            "slashcommand",
        ],
    ),
    (
        "a subagent hands back its summary, and agents send each other nothing else; delegate with `task`",
        &[
            "teamdelete",
            "resumeagent",
            "readagent",
            "listagents",
            "backgroundagents",
            "sendmessage",
            "sendinput",
            "waitagent",
            "closeagent",
            "teamcreate",
            "tasklist",
            "taskget",
        ],
    ),
    (
        "each agent has exactly the tools that are listed, so there is nothing to search; remove it",
        &["platformsearchavailableextensions", "extensions", "toolsearch", "extensionmanager"],
    ),
    (
        "a job has no schedule: cron or a CI workflow starts it",
        &[
            "crondelete",
            "cronlist",
            "remotetrigger",
            "schedulewakeup",
            "workflow",
            "croncreate",
            "platformmanageschedule",
        ],
    ),
    (
        "whether an agent has a copy of its own is set by `workspace: own` of a subagent",
        &["exitworktree", "enterworktree"],
    ),
    (
        "when a conversation outgrows the window is decided by `compaction`",
        &["condensationrequest", "condense", "compact"],
    ),
    (
        "legwork has no tool for it; remove it",
        &[
            "reportbug",
            "clihelp",
            "getinternaldocs",
            "fetchcopilotclidocumentation",
            "vscodeapi",
            "getvscodeapi",
            "vscode",
            "new",
            "creatediagram",
            "generateexplanation",
            "modelpicker",
            "invalid",
            "showfile",
        ],
    ),
    ("images are inputs of type `image`", &["viewimage", "imagegeneration", "generateimage", "readimage"]),
];

/// What to do about a tool of another program that isn't here.
pub(super) fn help_for_tool(name: &str) -> Option<String> {
    if let Some(rest) = name.strip_prefix("mcp__") {
        let (server, tool) = rest.split_once("__").unwrap_or((rest, "TOOL"));
        let tool = if tool.is_empty() || tool == "*" { "TOOL" } else { tool };
        return Some(format!(
            "write `- {{ mcp: {server}, allow: [{tool}] }}` for tools of the server `{server}`, and declare that under `mcp`"
        ));
    }
    // `github/get_issue` and `github.get_issue`, as some programs write tools of servers, and `@server`.
    let of_server = name.strip_prefix('@').map(|server| (server, "TOOL"));
    let of_server = of_server.or_else(|| name.split_once(['/', '.'])).or_else(|| name.split_once("__"));
    let known = help_in(TOOLS, name).map(str::to_owned);
    let is_word = |word: &str| {
        !word.is_empty()
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '*'))
    };
    let of_server = of_server.filter(|(server, tool)| is_word(server) && is_word(tool) && *server != "*");
    if let (None, Some((server, tool))) = (&known, of_server) {
        return Some(format!(
            "if it is a tool of a server, write `- {{ mcp: {server}, allow: [{tool}] }}`, and declare the server under `mcp`"
        ));
    }
    known
}

fn help_in(table: &[ForeignNames], name: &str) -> Option<&'static str> {
    let folded = fold_key(name);
    table.iter().find(|(_, names)| names.contains(&&*folded)).map(|(help, _)| *help)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::key_aliases::keys_for_alias;
    use super::super::tool_aliases::tool_for_alias;
    use super::*;

    #[test]
    fn every_name_is_folded_and_listed_once() {
        for table in [KEYS, TOOLS] {
            let mut seen = HashSet::new();
            for name in table.iter().flat_map(|(_, names)| *names) {
                assert_eq!(fold_key(name), *name);
                assert!(seen.insert(name), "{name}");
            }
        }
        for name in TOOLS.iter().flat_map(|(_, names)| *names) {
            assert_eq!(tool_for_alias(name), None, "{name}");
        }
        assert_eq!(keys_for_alias("steplimit").next(), Some("max_turns"));
    }

    #[test]
    fn the_names_of_other_programs_lead_somewhere() {
        let tools = "activate_skill delete_file git_diff run_tests semantic_search SendMessage ToolSearch CronCreate condense \
                     fetch_webpage switch_mode getTerminalOutput github_repo @github github/get_issue github.get_issue lsp \
                     execute_ipython_cell container.exec call_agent create_plan read_multiple_files file_editor mkdir npm \
                     ExitWorktree ReadMcpResourceTool ScheduleWakeup SendUserMessage wait resume_agent grep_files \
                     request_permissions generalist search_and_replace use_subagents multi_replace_string_in_file web_search_preview \
                     todo__todo_write chatrecall report_intent stop_bash update_todo sql openapi serena remove_file";
        for name in tools.split_whitespace() {
            assert!(help_for_tool(name).is_some() || tool_for_alias(name).is_some(), "{name}");
        }
        assert!(help_for_tool("files__list_all").unwrap().contains("{ mcp: files, allow: [list_all] }"));
        assert!(help_for_tool("github/get_issue").unwrap().contains("{ mcp: github, allow: [get_issue] }"));
        let keys = "recipe extends include stop_conditions dry_run tests output_schema core_tools model_providers runtime rule \
                    while skip verify finally log_level tool_choice subagent_type model_reasoning_effort autoAccept condenser \
                    github-token manual-approval staged firewall max_iter max_execution_time respect_context_window \
                    planning step_callback guardrail output_file output_key budget_tokens settingSources examples branch \
                    slack attachments dataset truncation markdown shell evaluation";
        for name in keys.split_whitespace() {
            assert!(help_for_key(name).is_some() || keys_for_alias(name).next().is_some(), "{name}");
        }
        assert_eq!(help_for_tool("unheard_of"), None);
    }
}
