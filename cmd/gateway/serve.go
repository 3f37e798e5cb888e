package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// serve runs the gateway until a signal ends it.
func serve(ctx context.Context, p *process, c Config) int {
	log, err := newLogger(p.stderr, c.LogLevel, c.LogFormat)
	if err != nil {
		p.complain(err.Error())
		return exitUsage
	}
	for _, w := range c.Warnings {
		log.Warn().Msg(w)
	}
	err = p.serveDisks(ctx, c, log)
	var bad *configError
	switch {
	case errors.As(err, &bad):
		for _, problem := range bad.problems {
			p.complain(problem)
		}
		return exitFail
	case err != nil:
		p.complain(oneLine(err))
		return exitFail
	}
	return exitOK
}

// oneLine joins the lines of an error.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

func (p *process) serveDisks(ctx context.Context, c Config, log zerolog.Logger) (err error) {
	paths, err := expandDisks(c.Args)
	if err != nil {
		return err
	}
	limitHeap(len(paths))
	// The port first: two gateways by mistake must not get as far as the disks.
	ln, err := net.Listen("tcp", c.Address)
	if err != nil {
		return err
	}
	faults := p.newFaults()
	defer faults.begin(ctx)()
	g, err := assemble(ctx, c, paths, faults, log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	ctx, stop := untilSignal(ctx, log)
	defer stop()
	return g.run(ctx, ln, func() { p.announce(g, ln.Addr(), log) })
}

// limitHeap gives the Go heap a soft limit, so that a burst of garbage is
// collected instead of kept; GOMEMLIMIT overrides it. Object data is not on the
// heap. The limit leaves room for 10,000 connections and, per disk, the
// metadata store.
func limitHeap(disks int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(320<<20 + int64(disks)*24<<20)
	}
}

// oneSignal is how close two signals are taken for one: terminals and
// supervisors often signal a process and its group.
const oneSignal = time.Second

// untilSignal returns a context that SIGTERM and SIGINT end. A second signal,
// from oneSignal after the first on, ends the process: whoever sends it doesn't
// want to wait.
func untilSignal(ctx context.Context, log zerolog.Logger) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() { // ended by the function returned
		defer close(done)
		var first time.Time
		for sig := range signals {
			switch {
			case first.IsZero():
				first = time.Now()
				log.Info().Stringer("signal", sig).Msg("draining; a second signal, from one second after this one on, ends at once")
				cancel()
			case time.Since(first) > oneSignal:
				log.Warn().Stringer("signal", sig).Msg("second signal: ending at once")
				os.Exit(exitFail)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel()
	}
}

// announce says that the gateway serves, and where the credentials are. New
// ones are printed, once, with lines to paste.
func (p *process) announce(g *gateway, addr net.Addr, log zerolog.Logger) {
	b := buildInfo()
	log.Info().Str("address", addr.String()).Int("disks", g.disks()).Int("sets", len(g.sets)).
		Str("version", b.Release).Stringer("io_uring", g.config.Knobs.engines.Enable).
		Stringer("buffer_mode", g.config.Knobs.engines.Mode).Msg("serving")
	switch g.source {
	case credentialsStored:
		log.Info().Str("file", g.plan.roots()[0]+"/"+credentialsFile).Str("user", g.root.User).Msg("root credentials are those generated at the first start")
	case credentialsGenerated:
		// If nobody reads standard output, the file is still there.
		_, _ = fmt.Fprint(p.stdout, welcome(g.root, endpointURL(addr.String()), g.config.Region, g.plan.roots()[0]+"/"+credentialsFile))
	}
}

// welcome is what a first start prints.
func welcome(c credentials, url, region, file string) string {
	return fmt.Sprintf(`
Root credentials were generated. They are shown this once and kept in
%s

  export AWS_ACCESS_KEY_ID=%s
  export AWS_SECRET_ACCESS_KEY=%s
  export AWS_DEFAULT_REGION=%s
  aws --endpoint-url %[5]s s3 mb s3://my-bucket
  date > hello.txt
  aws --endpoint-url %[5]s s3 cp hello.txt s3://my-bucket/
  aws --endpoint-url %[5]s s3 ls s3://my-bucket/
  aws --endpoint-url %[5]s s3 cp s3://my-bucket/hello.txt again.txt

`, file, c.User, c.Password, region, url)
}

// endpointURL is where this machine reaches a gateway that listens on address.
func endpointURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
