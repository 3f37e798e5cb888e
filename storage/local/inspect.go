package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"ringfence/storage"
)

// Content says what a directory holds.
type Content uint8

// What Inspect can find.
const (
	Blank     Content = iota // nothing, or what an interrupted Format left
	Formatted                // one of our disks
	Foreign                  // somebody else's files: never to be formatted
	Damaged                  // one of our disks, but it can't be identified
)

// String gives the lower-case word.
func (c Content) String() string {
	switch c {
	case Blank:
		return "blank"
	case Formatted:
		return "formatted"
	case Foreign:
		return "foreign"
	case Damaged:
		return "damaged"
	}
	return "unknown"
}

// Inspection is the answer of Inspect.
type Inspection struct {
	Content  Content
	Identity storage.Identity // when Formatted
	Reason   string           // when Foreign or Damaged: what was found, for people
}

// Inspect looks at a directory without changing it. An error means that it
// couldn't look (the directory is not there, an I/O error, a disk written by a
// newer release); what it found is never an error.
func Inspect(ctx context.Context, o Options) (Inspection, error) {
	o = o.withDefaults()
	pool, done, err := o.pool()
	if err != nil {
		return Inspection{}, o.wrap("inspect", err)
	}
	defer done()
	ins, err := inspect(ctx, o.Backend, pool)
	return ins, o.wrap("inspect", err)
}

// pool is the caller's pool, or one to be closed by the returned function.
func (o Options) pool() (*storage.Pool, func(), error) {
	if o.Pool != nil {
		return o.Pool, func() {}, nil
	}
	p, err := storage.NewPool(storage.PoolOptions{BudgetBytes: ownPoolBytes})
	if err != nil {
		return nil, nil, fmt.Errorf("pool: %w", err)
	}
	return p, func() {
		if err := p.Close(); err != nil {
			o.Log.Warn().Err(err).Str("disk", o.Root).Msg("close buffer pool")
		}
	}, nil
}

func inspect(ctx context.Context, b storage.Backend, pool *storage.Pool) (Inspection, error) {
	sb, err := readSuperblocks(ctx, b, pool)
	switch {
	case err == nil:
		return Inspection{Content: Formatted, Identity: sb.current.Identity}, nil
	case errors.Is(err, storage.ErrCorrupt):
		return Inspection{Content: Damaged, Reason: err.Error()}, nil
	case !errors.Is(err, storage.ErrNotFound):
		return Inspection{}, err
	}
	entries, err := b.ReadDir(ctx, ".")
	if err != nil {
		return Inspection{}, err
	}
	var ours bool
	var strange []string
	for _, e := range entries {
		switch e.Name() {
		case "lost+found": // every new ext4 has it
		case nameLock, nameA + ".tmp", nameB + ".tmp":
		case NameCredentials, NameCredentials + tempSuffix, NamePending, NamePending + tempSuffix:
		case nameMeta, nameOld, nameShards:
			ours = true
		default:
			strange = append(strange, e.Name())
		}
	}
	if len(strange) > 0 {
		return Inspection{Content: Foreign, Reason: describe(strange)}, nil
	}
	if ours {
		return inspectFolders(ctx, b)
	}
	return Inspection{Content: Blank}, nil
}

// inspectFolders tells an interrupted Format, whose folders are empty, from a
// disk that lost both superblocks.
func inspectFolders(ctx context.Context, b storage.Backend) (Inspection, error) {
	damaged := func(found string) Inspection {
		return Inspection{Content: Damaged, Reason: "no superblock, but data: found " + found}
	}
	for _, name := range []string{nameMeta, nameOld} {
		files, err := readDir(ctx, b, name)
		if err != nil {
			return Inspection{}, err
		}
		if len(files) > 0 {
			return damaged(name + "/" + files[0].Name()), nil
		}
	}
	subs, err := readDir(ctx, b, nameShards)
	if err != nil {
		return Inspection{}, err
	}
	for _, sub := range subs {
		name := nameShards + "/" + sub.Name()
		if !sub.IsDir() {
			return damaged(name), nil
		}
		files, err := readDir(ctx, b, name)
		if err != nil {
			return Inspection{}, err
		}
		if len(files) > 0 {
			return damaged(name + "/" + files[0].Name()), nil
		}
	}
	return Inspection{Content: Blank}, nil
}

// readDir lists a folder; one that isn't there is empty.
func readDir(ctx context.Context, b storage.Backend, name string) ([]fs.DirEntry, error) {
	entries, err := b.ReadDir(ctx, name)
	if errors.Is(classify(err), storage.ErrNotFound) {
		return nil, nil
	}
	return entries, err
}

// describe names what was found, and whose it is where the name tells.
func describe(names []string) string {
	known := map[string]string{
		".minio.sys":  "a MinIO disk",
		".rustfs.sys": "a RustFS disk",
		"meta.db":     "a Garage store",
	}
	for _, n := range names {
		if what, ok := known[n]; ok {
			return fmt.Sprintf("holds %s (found %s)", what, n)
		}
	}
	slices.Sort(names)
	const show = 3
	text := strings.Join(quote(names[:min(show, len(names))]), ", ")
	if more := len(names) - show; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "not empty: found " + text
}

func quote(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return out
}

// Format makes a blank directory one of our disks, durably. It refuses
// anything else. Interrupted, it leaves a directory that is still Blank. The
// entry of the directory itself in its parent is the caller's to sync.
func Format(ctx context.Context, o Options, id storage.Identity) error {
	o = o.withDefaults()
	return o.wrap("format", format(ctx, o, id))
}

func format(ctx context.Context, o Options, id storage.Identity) error {
	if err := checkIdentity(id); err != nil {
		return err
	}
	pool, done, err := o.pool()
	if err != nil {
		return err
	}
	defer done()
	lock, err := takeLock(o)
	if err != nil {
		return err
	}
	defer func() {
		if err := lock.Close(); err != nil {
			o.Log.Warn().Err(err).Str("disk", o.Root).Msg("release lock")
		}
	}()
	ins, err := inspect(ctx, o.Backend, pool)
	switch {
	case err != nil:
		return err
	case ins.Content == Formatted:
		return fmt.Errorf("%w: already disk %s", storage.ErrExists, ins.Identity.Disk)
	case ins.Content != Blank:
		return fmt.Errorf("%w: %s: %s", storage.ErrExists, ins.Content, ins.Reason)
	}
	if err := makeFolders(ctx, o.Backend); err != nil {
		return err
	}
	sb := superblock{Version: formatVersion, Generation: 1, Identity: id}
	for _, name := range []string{nameA, nameB} {
		if err := writeSuperblock(ctx, o.Backend, name, sb); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return o.Backend.Check()
}

// makeFolders creates what is missing of meta/ and shards/, and makes all of it
// durable: what is there may have been made a moment before the power failed
// the last time, and never have got to the disk.
func makeFolders(ctx context.Context, b storage.Backend) error {
	for _, name := range []string{nameMeta, nameShards} {
		if err := b.Mkdir(ctx, name); err != nil {
			return err
		}
	}
	have := map[string]bool{}
	entries, err := b.ReadDir(ctx, nameShards)
	if err != nil {
		return err
	}
	for _, e := range entries {
		have[nameShards+"/"+e.Name()] = true
	}
	for n := range folders {
		if name := folderName(n); !have[name] {
			if err := b.Mkdir(ctx, name); err != nil {
				return err
			}
		}
	}
	if err := b.SyncDir(ctx, nameShards); err != nil {
		return err
	}
	return b.SyncDir(ctx, ".")
}
