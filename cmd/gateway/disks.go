package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"ringfence/storage"
	"ringfence/storage/local"
)

// opener opens disks with what they share.
type opener struct {
	engines *engines
	options local.Options // all but Root, Backend and Pool
}

// with gives the options of one disk and its backend, the reference, which is
// the caller's until a disk was opened with them.
func (o opener) with(path string) (local.Options, error) {
	backend, err := o.engines.reference(path)
	if err != nil {
		return local.Options{}, err
	}
	return o.on(path, backend), nil
}

// on gives the options of one disk on a backend.
func (o opener) on(path string, backend storage.Backend) local.Options {
	opts := o.options
	opts.Root, opts.Backend, opts.Pool = path, backend, o.engines.pool
	return opts
}

// lookAt says what every path holds. It changes nothing. A path that is given
// twice, by whatever name, is refused.
func (o opener) lookAt(ctx context.Context, paths []string) ([]found, error) {
	bad := &configError{}
	seen := map[[2]uint64]string{}
	byName := map[string]bool{}
	disks := make([]found, len(paths))
	for i, path := range paths {
		if byName[path] {
			bad.problems = append(bad.problems, fmt.Sprintf("disk %s: given twice", path))
			continue
		}
		byName[path] = true
		info, err := os.Stat(path)
		if err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				id := [2]uint64{st.Dev, st.Ino}
				if other, twice := seen[id]; twice {
					bad.problems = append(bad.problems, fmt.Sprintf("disks %s and %s are the same directory", other, path))
					continue
				}
				seen[id] = path
			}
		}
		disks[i] = o.lookAtOne(ctx, path, info, err)
	}
	if len(bad.problems) > 0 {
		return nil, bad
	}
	return disks, ctx.Err()
}

func (o opener) lookAtOne(ctx context.Context, path string, info os.FileInfo, err error) found {
	d := found{path: path}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.look = lookAbsent
		return d
	case err != nil:
		d.look, d.reason = lookBroken, explain(path, err)
		return d
	case !info.IsDir():
		d.look, d.reason = lookForeign, "is not a directory"
		return d
	}
	opts, err := o.with(path)
	if err != nil {
		d.look, d.reason = lookBroken, explain(path, err)
		return d
	}
	ins, err := local.Inspect(ctx, opts)
	if err := errors.Join(err, opts.Backend.Close()); err != nil {
		d.look, d.reason = lookBroken, explain(path, err)
		return d
	}
	d.reason, d.id = ins.Reason, ins.Identity
	switch ins.Content {
	case local.Blank:
		d.look = lookBlank
		d.pending = readPending(path)
	case local.Formatted:
		d.look = lookFormatted
	case local.Damaged:
		d.look = lookDamaged
	default:
		d.look = lookForeign
	}
	return d
}

// explain adds to err what to do about it, where that is known.
func explain(path string, err error) string {
	text := strings.TrimSpace(err.Error())
	if errors.Is(err, fs.ErrPermission) {
		text += fmt.Sprintf(": can't use %s as uid %d; run chown -R %d:%d %s", path, os.Getuid(), os.Getuid(), os.Getgid(), path)
	}
	return text
}

// A first start formats many disks, and may be cut short between two of them.
// What the next start finds then must not look like an old store with blank
// disks, which would stay out for ever. So every directory gets its identity
// written beside the superblocks-to-be before the first disk is formatted, and
// rid of it when all disks are; no data is taken before that.

// readPending returns the identity that an unfinished first start chose for a
// directory, nil if there is none to be trusted.
func readPending(path string) *storage.Identity {
	data, err := readSmall(path, local.NamePending)
	if err != nil {
		return nil
	}
	var id storage.Identity
	if err := json.Unmarshal(data, &id); err != nil || id.Deployment.IsZero() {
		return nil
	}
	return &id
}

// format formats the places that need it; in a new store, all of them. The
// marks of the pending format stay until settle.
func (o opener) format(ctx context.Context, p plan) error {
	var places []place
	for _, set := range p.sets {
		for _, at := range set {
			if at.format {
				places = append(places, at)
			}
		}
	}
	for _, at := range places {
		if err := makeDir(at.path); err != nil {
			return fmt.Errorf("make disk %s: %s", at.path, explain(at.path, err))
		}
		data, err := json.Marshal(at.id)
		if err != nil {
			return fmt.Errorf("encode identity: %w", err)
		}
		if err := writeDurably(at.path, local.NamePending, data); err != nil {
			return fmt.Errorf("disk %s: %s", at.path, explain(at.path, err))
		}
	}
	var formats errgroup.Group
	for _, at := range places {
		formats.Go(func() error { return o.formatOne(ctx, at) })
	}
	return formats.Wait()
}

func (o opener) formatOne(ctx context.Context, at place) error {
	opts, err := o.with(at.path)
	if err != nil {
		return err
	}
	return errors.Join(local.Format(ctx, opts, at.id), opts.Backend.Close())
}

// settle removes the marks of a pending format. Before it returns without
// error, no data must be taken.
func (p plan) settle() error {
	for _, set := range p.sets {
		for _, at := range set {
			if at.path == "" {
				continue
			}
			if err := removeDurably(at.path, local.NamePending); err != nil && p.fresh {
				return fmt.Errorf("disk %s: %s", at.path, explain(at.path, err))
			}
		}
	}
	return nil
}

// roots are the directories of the disks that were found.
func (p plan) roots() []string {
	var roots []string
	for _, set := range p.sets {
		for _, at := range set {
			if at.path != "" {
				roots = append(roots, at.path)
			}
		}
	}
	return roots
}

// makeDir makes a directory and its missing parents, durably.
func makeDir(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// open opens the disk of a place whose directory is known.
func (o opener) open(ctx context.Context, place, path string) (storage.Disk, error) {
	backend, err := o.engines.make(path)
	if err != nil {
		return nil, err
	}
	d, err := local.Open(ctx, o.on(path, backend))
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	o.engines.run(ctx, place, backend)
	return d, nil
}

// find opens the disk of a place that had none at the start: one of the vacant
// directories may have got it back meanwhile. Its error says of each what is
// there instead.
func (o opener) find(ctx context.Context, place string, want storage.Identity, vacant []string) (storage.Disk, error) {
	var instead []string
	for _, path := range vacant {
		info, err := os.Stat(path)
		d := o.lookAtOne(ctx, path, info, err)
		if d.look == lookFormatted && d.id.Deployment == want.Deployment && d.id.Set == want.Set && d.id.Slot == want.Slot {
			return o.open(ctx, place, path)
		}
		instead = append(instead, fmt.Sprintf("%s (%s)", path, d.what()))
	}
	if len(instead) == 0 {
		return nil, fmt.Errorf("%w: no directory was given for it", storage.ErrOffline)
	}
	return nil, fmt.Errorf("%w: it is in none of %s", storage.ErrOffline, strings.Join(instead, ", "))
}
