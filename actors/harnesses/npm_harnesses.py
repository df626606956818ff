"""The harnesses that are published on npm."""

from __future__ import annotations

from actors.harnesses.published_harness import NpmPackage, PublishedHarness

CLAUDE_CODE = PublishedHarness(
    name="claude-code",
    title="Claude Code",
    package=NpmPackage("@anthropic-ai/claude-code", "2.1.332"),
    program="node_modules/@anthropic-ai/claude-code/bin/claude.exe",
    command='"$HARNESS_BIN/claude-code" -p --dangerously-skip-permissions',
    environment={
        "CLAUDE_CONFIG_DIR": "$HARNESS_HOME",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",
        "ANTHROPIC_MODEL": "$OPENAI_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "$OPENAI_MODEL",
        "API_TIMEOUT_MS": "3600000",
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "$LONGSHORE_CONTEXT_TOKENS",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "$LONGSHORE_MAX_NEW_TOKENS",
    },
    prompt_tokens=17_000,
    context_tokens=65_536,
    temperature=1.0,
    memory_mb=1024,
)
"""``IS_SANDBOX`` lets it skip permissions as root.  It compacts when 13,000 tokens and a reply are left."""

CODEX = PublishedHarness(
    name="codex",
    title="Codex",
    package=NpmPackage("@openai/codex", "0.171.0"),
    program="node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
    command='"$HARNESS_BIN/codex" exec --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check -',
    environment={"CODEX_HOME": "$HARNESS_HOME"},
    files={
        "config.toml": """\
model = "$OPENAI_MODEL"
model_provider = "gateway"
model_context_window = $LONGSHORE_CONTEXT_TOKENS
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.gateway]
name = "gateway"
base_url = "$OPENAI_BASE_URL"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
stream_idle_timeout_ms = 3600000

[analytics]
enabled = false

[history]
persistence = "none"
"""
    },
    prompt_tokens=14_000,
    context_tokens=32_768,
    memory_mb=512,
)

OPENCODE = PublishedHarness(
    name="opencode",
    title="opencode",
    package=NpmPackage("opencode-ai", "1.18.33"),
    program="node_modules/opencode-ai/bin/opencode.exe",
    command='"$HARNESS_BIN/opencode" run --pure --auto --model "gateway/$OPENAI_MODEL"',
    environment={
        "XDG_CONFIG_HOME": "$HARNESS_HOME/config",
        "XDG_DATA_HOME": "$HARNESS_HOME/data",
        "XDG_STATE_HOME": "$HARNESS_HOME/state",
        "XDG_CACHE_HOME": "$HARNESS_HOME/cache",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    },
    files={
        "config/opencode/opencode.json": """\
{
  "autoupdate": false,
  "share": "disabled",
  "snapshot": false,
  "permission": "allow",
  "model": "gateway/$OPENAI_MODEL",
  "small_model": "gateway/$OPENAI_MODEL",
  "enabled_providers": ["gateway"],
  "provider": {
    "gateway": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "$OPENAI_BASE_URL", "apiKey": "$OPENAI_API_KEY", "timeout": false},
      "models": {"$OPENAI_MODEL": {"name": "$OPENAI_MODEL", "tool_call": true}}
    }
  }
}
"""
    },
    prompt_tokens=12_000,
    context_tokens=32_768,
    memory_mb=1024,
)

PI = PublishedHarness(
    name="pi",
    title="pi",
    package=NpmPackage("@mariozechner/pi-coding-agent", "0.73.1", node=True),
    program="node_modules/@mariozechner/pi-coding-agent/dist/cli.js",
    command='"$HARNESS_BIN/node" "$HARNESS_BIN/pi" --print --offline --no-session --provider gateway '
    '--model "$OPENAI_MODEL"',
    environment={"PI_CODING_AGENT_DIR": "$HARNESS_HOME", "PI_OFFLINE": "1", "PI_TELEMETRY": "0"},
    files={
        "models.json": """\
{
  "providers": {
    "gateway": {
      "baseUrl": "$OPENAI_BASE_URL",
      "api": "openai-completions",
      "apiKey": "OPENAI_API_KEY",
      "models": [{"id": "$OPENAI_MODEL"}]
    }
  }
}
"""
    },
    prompt_tokens=2_000,
    context_tokens=16_384,
    memory_mb=512,
)

NPM_HARNESSES = (CLAUDE_CODE, CODEX, OPENCODE, PI)
