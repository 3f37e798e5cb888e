package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"ringfence/server"
)

// adminSettings are those of `gateway admin`.
func adminSettings() []setting {
	return append([]setting{
		{name: "endpoint", value: "URL", help: "the gateway to ask; without it, the one that address stands for on this machine", parse: parseEndpoint},
	}, named(settings(), "address", "region", "root-user", "root-password", "root-user-file", "root-password-file")...)
}

func parseEndpoint(c *Config, v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return fmt.Errorf("%q is not a URL such as http://127.0.0.1:9000", v)
	}
	c.Endpoint = u.Scheme + "://" + u.Host
	return nil
}

// admin asks a running gateway.
func admin(ctx context.Context, p *process, c Config) int {
	client, err := p.adminClient(c)
	if err != nil {
		p.complain(err.Error())
		return exitUsage
	}
	// A path that needs no escapes is signed as it stands.
	if len(c.Args) > 1 && strings.Trim(c.Args[1], "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		p.complain(fmt.Sprintf("no knob is named %q", c.Args[1]))
		return exitFail
	}
	switch args := c.Args; {
	case len(args) == 1 && args[0] == "knobs":
		err = client.listKnobs(ctx, p.stdout)
	case len(args) == 2 && args[0] == "knobs":
		err = client.showKnob(ctx, p.stdout, args[1])
	case len(args) == 3 && args[0] == "knobs":
		err = client.setKnob(ctx, p.stdout, args[1], args[2])
	case len(args) == 1 && args[0] == "engines":
		err = client.listEngines(ctx, p.stdout)
	default:
		p.complain("admin takes `knobs`, `knobs NAME`, `knobs NAME VALUE` or `engines`; see gateway admin -h")
		return exitUsage
	}
	if err != nil {
		p.complain(oneLine(err))
		return exitFail
	}
	return exitOK
}

// adminClient talks to the administration API of one gateway.
type adminClient struct {
	endpoint, region string
	root             credentials
}

// adminClient takes the root user's credentials as the server does, or those
// that S3 clients use.
func (p *process) adminClient(c Config) (adminClient, error) {
	client := adminClient{endpoint: c.Endpoint, region: c.Region, root: credentials{User: c.Root.User, Password: c.Root.Password}}
	if client.endpoint == "" {
		client.endpoint = endpointURL(c.Address)
	}
	if client.root.User == "" {
		client.root = credentials{User: p.variable("AWS_ACCESS_KEY_ID"), Password: p.variable("AWS_SECRET_ACCESS_KEY")}
	}
	if client.root.User == "" || client.root.Password == "" {
		return adminClient{}, errors.New("the root credentials are needed: set RINGFENCE_ROOT_USER and RINGFENCE_ROOT_PASSWORD, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	return client, nil
}

// variable is an environment variable that isn't ours.
func (p *process) variable(name string) string {
	for _, kv := range p.environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// adminPatience bounds one request of the administrator's.
const adminPatience = 10 * time.Second

// adminAnswer bounds an answer, in bytes: hundreds of disks fit.
const adminAnswer = 4 << 20

// ask makes a signed request and decodes the answer.
func (a adminClient) ask(ctx context.Context, method, path string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.endpoint+"/-/admin/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	sign(req, body, a.root, a.region, time.Now())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(resp.Body, adminAnswer))
	if err != nil {
		return fmt.Errorf("%s: read answer: %w", a.endpoint, err)
	}
	if resp.StatusCode != http.StatusOK {
		var refused struct{ Message string }
		if err := json.Unmarshal(data, &refused); err != nil || refused.Message == "" {
			return fmt.Errorf("%s: %s", a.endpoint, resp.Status)
		}
		return fmt.Errorf("%s: %s: %s", a.endpoint, resp.Status, refused.Message)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("%s: decode answer: %w", a.endpoint, err)
	}
	return nil
}

func (a adminClient) listKnobs(ctx context.Context, to io.Writer) error {
	var all []server.KnobInfo
	if err := a.ask(ctx, http.MethodGet, "knobs", nil, &all); err != nil {
		return err
	}
	return table(to, "NAME\tVALUE\tDEFAULT\tALLOWED\tMEANING", all, func(k server.KnobInfo) string {
		return strings.Join([]string{k.Name, k.Value, k.Default, k.Allowed, k.Help}, "\t")
	})
}

func (a adminClient) showKnob(ctx context.Context, to io.Writer, name string) error {
	var k server.KnobInfo
	if err := a.ask(ctx, http.MethodGet, "knobs/"+name, nil, &k); err != nil {
		return err
	}
	_, err := fmt.Fprintf(to, "%s\n", k.Value)
	return err
}

func (a adminClient) setKnob(ctx context.Context, to io.Writer, name, value string) error {
	var done struct{ Name, Old, Value string }
	body, err := json.Marshal(map[string]string{"value": value})
	if err != nil {
		return err
	}
	if err := a.ask(ctx, http.MethodPut, "knobs/"+name, body, &done); err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "%s: %s, was %s\n", done.Name, done.Value, done.Old)
	return err
}

func (a adminClient) listEngines(ctx context.Context, to io.Writer) error {
	var all []server.EngineInfo
	if err := a.ask(ctx, http.MethodGet, "engines", nil, &all); err != nil {
		return err
	}
	return table(to, "DISK\tTIER\tRINGS\tBUFFERS\tCOMPARED\tMISMATCHED\tWHY", all, func(e server.EngineInfo) string {
		return fmt.Sprintf("%s\t%s\t%d\t%s\t%d\t%d\t%s", e.Disk, e.Tier, e.Shards, e.Mode, e.Compared, e.Mismatched, e.Why)
	})
}

// table writes rows in columns.
func table[T any](to io.Writer, head string, rows []T, line func(T) string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	// tabwriter keeps the first error for Flush.
	_, _ = fmt.Fprintln(w, head)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, line(r))
	}
	return w.Flush()
}
