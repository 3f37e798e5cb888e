package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// health asks a gateway's /-/ready, so that an image without a shell can have
// a health check. Without a URL it asks the gateway that this configuration
// would start. The URL may carry another path, such as /-/live.
func health(ctx context.Context, p *process, c Config) int {
	if len(c.Args) > 1 {
		p.complain("health takes one URL")
		return exitUsage
	}
	url := endpointURL(c.Address)
	if len(c.Args) == 1 {
		url = strings.TrimSuffix(c.Args[0], "/")
	}
	if !strings.Contains(url, "/-/") {
		url += "/-/ready"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		p.complain(err.Error())
		return exitUsage
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.complain(err.Error())
		return exitFail
	}
	defer func() { _ = resp.Body.Close() }() // only read from
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		p.complain(fmt.Sprintf("%s: read answer: %v", url, err))
		return exitFail
	}
	if resp.StatusCode != http.StatusOK {
		p.complain(fmt.Sprintf("%s: %s: %s", url, resp.Status, strings.TrimSpace(string(body))))
		return exitFail
	}
	if _, err := fmt.Fprintln(p.stdout, strings.TrimSpace(string(body))); err != nil {
		return exitFail
	}
	return exitOK
}
