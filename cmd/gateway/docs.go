package main

import (
	"fmt"
	"strings"
)

// flagsDoc renders the settings table as docs/flags.md.
func flagsDoc() string {
	var b strings.Builder
	b.WriteString("# Settings\n\n")
	b.WriteString("Generated from the table in cmd/gateway/settings.go by `go generate ./cmd/gateway`; do not edit.\n\n")
	b.WriteString("Every setting of `gateway server` is a flag and an environment variable. Default < environment < flag.\n")
	b.WriteString("A configuration with mistakes is refused, all of them listed. An unknown `" + envPrefix + "` variable gives a warning.\n\n")
	b.WriteString("| flag | environment | default | meaning |\n|---|---|---|---|\n")
	for _, s := range fixedSettings() {
		writeSetting(&b, s)
	}
	b.WriteString("\n" + strings.ReplaceAll(diskHelp, "DISK", "`DISK`") + "\n")
	b.WriteString("\n## Live settings\n\n")
	b.WriteString("These are where a knob begins; it may be turned while the gateway runs ([knobs.md](knobs.md)).\n")
	b.WriteString("They make reads faster or safer to try out, and never decide on what is read, so a value that means nothing\n")
	b.WriteString("leaves the default and a number beyond the bounds is clamped, each with a warning in the log; a word that is\n")
	b.WriteString("none of the choices is refused. `default` is the default.\n\n")
	b.WriteString("| flag | environment | default | meaning |\n|---|---|---|---|\n")
	for _, s := range knobSettings() {
		writeSetting(&b, s)
	}
	b.WriteString("\n## Commands\n\n| command | what it does |\n|---|---|\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "| `gateway %s` | %s |\n", escapeCell(strings.TrimSpace(c.name+" "+c.args)), escapeCell(c.summary))
	}
	b.WriteString("\n`gateway admin` takes `--endpoint URL`, `--address`, `--region` and the root user's settings; `gateway doctor`\ntakes `--memory` and the live settings.\n")
	b.WriteString("\nExit codes: 0 fine, 1 failed, 2 asked for something that makes no sense.\n")
	return b.String()
}

func writeSetting(b *strings.Builder, s setting) {
	fmt.Fprintf(b, "| `--%s %s` | `%s` | %s | %s |\n", s.name, escapeCell(s.value), s.env(), s.defaultText(), escapeCell(s.help))
}

func escapeCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// knobsDoc renders docs/knobs.md.
func knobsDoc() string {
	var b strings.Builder
	b.WriteString("# Knobs\n\n")
	b.WriteString("Generated from the knobs themselves by `go generate ./cmd/gateway`; do not edit.\n\n")
	b.WriteString(knobsIntro)
	b.WriteString("\n| knob | environment at the start | default | allowed | meaning |\n|---|---|---|---|---|\n")
	for _, k := range newKnobs().set.All() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", k.Name(), setting{name: k.Name()}.env(), k.Default(), escapeCell(k.Allowed()), escapeCell(k.Help()))
	}
	b.WriteString(knobsWire)
	return b.String()
}

const knobsIntro = `A knob is a setting that may change while the gateway serves. A change holds for all disks, and until the process ends:
the environment or a flag says where a knob begins at the next start. Every read looks at the knobs once, so it is made
wholly by the old values or wholly by the new ones. What a change of ` + "`io-uring-read-enable`, `io-uring-shards`, `io-uring-entries`" + `
or ` + "`io-uring-buffer-mode`" + ` needs is done within a moment, in the background: new rings are started, take over, and the old ones
finish what they accepted.

` + "```" + `
gateway admin knobs                            list
gateway admin knobs io-uring-read-enable       show one
gateway admin knobs io-uring-read-enable on    set one
gateway admin engines                          how each disk is read now, and why
` + "```" + `

Words for on: 1, t, true, on, yes, ok, success, active, enabled. For off: 0, f, false, off, no, not_ok, failure, inactive,
disabled. Sizes are bytes, or carry KiB, MiB, GiB or TiB. ` + "`auto`" + ` depends on the number of processors.

## Who may

` + "`gateway admin`" + ` needs the root credentials, by the settings ` + "`root-user` and `root-password`" + ` (or their files) or, without them, by
` + "`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`" + `. It asks ` + "`RINGFENCE_ENDPOINT` or `--endpoint`" + `, else this machine at ` + "`address`" + `.

## Buffer modes

All read the same bytes. Memory that is registered with the kernel is not looked up for every read. It is locked, and counts
against RLIMIT_MEMLOCK for each ring, of which every disk has ` + "`io-uring-shards`" + `, unless the process is privileged;
` + "`gateway doctor`" + ` shows the limit.

| ` + "`io-uring-buffer-mode`" + ` | what each ring registers |
|---|---|
| ` + "`non-fixed`" + ` | nothing; the default |
| ` + "`legacy`" + ` | two regions of its own, as large as the largest buffer each; what was read is copied from there |
| ` + "`dynamic`" + ` | the pool's memory, piece by piece as reads meet it, until the pool gives a piece back to the system |
| ` + "`static`" + ` | the whole of ` + "`memory`" + `, at the start: it is all mapped then, and locked by every ring of every disk |

When registering is refused, mostly for want of RLIMIT_MEMLOCK, the rings of that disk go on as with ` + "`non-fixed`" + ` until a
change of the knobs starts new ones. The log says so (` + "`buffers can't be registered: reading without`" + `), and ` + "`gateway admin engines`" + ` shows the mode in effect.

## The knobs
`

const knobsWire = `
## On the wire

Requests carry a Signature Version 4 of the root user in the Authorization header, service ` + "`s3`" + `, region that of the store.
Answers are JSON. Whatever lies below ` + "`/-/admin/`" + ` asks for it, also what does not exist; presigned URLs are not taken. At most 8
requests are in work at once; they are not counted against ` + "`max-requests`" + `.

| request | answer |
|---|---|
| ` + "`GET /-/admin/v1/knobs`" + ` | list of ` + "`{name, value, default, allowed, help, live}`" + ` |
| ` + "`GET /-/admin/v1/knobs/NAME`" + ` | one of them |
| ` + "`PUT /-/admin/v1/knobs/NAME`" + ` | ` + "`{name, old, value}`" + `; the body is the value as text (` + "`on`" + `), or ` + "`{\"value\": ...}`" + ` with a string, number or bool; at most 4 KiB |
| ` + "`GET /-/admin/v1/engines`" + ` | list of disks with the tier that serves, why, what is latched, and counts |
| refused | ` + "`{code, message, request}`" + `: 400 a value that is not allowed, 403 not the root user, 404 no such knob, 405, 413, 503 too many at once |

Every change is a line in the log, at any log level, with ` + "`\"audit\":\"knob\"`" + `, who, from where, the knob, the old value and the new one.

` + "```sh" + `
curl --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" --aws-sigv4 aws:amz:us-east-1:s3 \
  -H x-amz-content-sha256:UNSIGNED-PAYLOAD -X PUT -d on http://127.0.0.1:9000/-/admin/v1/knobs/io-uring-read-enable
` + "```" + `

` + "`UNSIGNED-PAYLOAD`" + ` leaves the body out of the signature, so over plain http nothing protects the value: use ` + "`gateway admin`" + `, which signs it.
`
