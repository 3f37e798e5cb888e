package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ringfence/storage"
	"ringfence/storage/local"
)

// credentialsFile lies beside the superblocks of every disk, mode 0600. Whoever
// can read a disk can read the objects on it anyway.
const credentialsFile = local.NameCredentials

// credentials open everything.
type credentials struct {
	Deployment string `json:"deployment"` // the store that they belong to
	User       string `json:"user"`
	Password   string `json:"password"`
}

// credentialSource says where the credentials in force came from.
type credentialSource string

const (
	credentialsGiven     credentialSource = "given"
	credentialsStored    credentialSource = "stored"
	credentialsGenerated credentialSource = "generated"
)

// settleCredentials returns the credentials in force: those of the
// configuration, else those on the disks, else new ones, which it stores first.
// Disks that lack them get a copy; problems with single disks are returned as
// notes, since any copy will do. roots are directories of disks of the store.
func settleCredentials(ctx context.Context, given rootConfig, deployment storage.UUID, roots []string) (credentials, credentialSource, []string, error) {
	if given.User != "" {
		return credentials{User: given.User, Password: given.Password}, credentialsGiven, nil, nil
	}
	c, lacking, notes := storedCredentials(deployment, roots)
	from := credentialsStored
	if c.User == "" {
		from = credentialsGenerated
		c = credentials{
			Deployment: deployment.String(),
			User:       "RF" + randomText(18, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
			Password:   randomText(40, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		return credentials{}, "", notes, fmt.Errorf("encode credentials: %w", err)
	}
	stored := len(roots) - len(lacking)
	for _, root := range lacking {
		if err := ctx.Err(); err != nil {
			return credentials{}, "", notes, err
		}
		if err := writeDurably(root, credentialsFile, data); err != nil {
			notes = append(notes, fmt.Sprintf("disk %s: store root credentials: %v", root, err))
			continue
		}
		stored++
	}
	if stored == 0 {
		return credentials{}, "", notes, errors.New("root credentials can't be stored on any disk")
	}
	return c, from, notes, nil
}

// storedCredentials returns what most disks hold, the zero value if none holds
// any, and the disks that hold nothing or something else.
func storedCredentials(deployment storage.UUID, roots []string) (c credentials, lacking, notes []string) {
	byContent := map[credentials][]string{}
	var best credentials
	for _, root := range roots {
		got, err := readCredentials(root, deployment)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			lacking = append(lacking, root)
		case err != nil:
			lacking = append(lacking, root)
			notes = append(notes, fmt.Sprintf("disk %s: root credentials: %v", root, err))
		default:
			byContent[got] = append(byContent[got], root)
			if len(byContent[got]) > len(byContent[best]) {
				best = got
			}
		}
	}
	for other, holders := range byContent {
		if other != best {
			lacking = append(lacking, holders...)
			notes = append(notes, fmt.Sprintf("root credentials on %v differ from those on most disks and are replaced", holders))
		}
	}
	slices.Sort(lacking)
	return best, lacking, notes
}

func readCredentials(disk string, deployment storage.UUID) (credentials, error) {
	data, err := readSmall(disk, credentialsFile)
	if err != nil {
		return credentials{}, err
	}
	var c credentials
	if err := json.Unmarshal(data, &c); err != nil {
		return credentials{}, fmt.Errorf("decode: %w", err)
	}
	if c.Deployment != deployment.String() {
		return credentials{}, errors.New("they belong to another store")
	}
	if err := checkUser(c.User); err != nil {
		return credentials{}, fmt.Errorf("user %w", err)
	}
	if len(c.Password) < minPassword {
		return credentials{}, errors.New("the password is too short")
	}
	return c, nil
}

// randomText draws n letters of an alphabet, each equally likely.
func randomText(n int, alphabet string) string {
	limit := byte(256 / len(alphabet) * len(alphabet)) // 0 when 256 is a multiple
	text := make([]byte, 0, n)
	for one := make([]byte, 1); len(text) < n; {
		// Read never fails: it ends the process when the kernel has no entropy.
		_, _ = rand.Read(one)
		if limit == 0 || one[0] < limit {
			text = append(text, alphabet[int(one[0])%len(alphabet)])
		}
	}
	return string(text)
}

// maxSmallFile bounds the files beside the superblocks, in bytes.
const maxSmallFile = 64 << 10

// readSmall reads a small regular file of a disk. It follows no symbolic link
// out of the disk.
func readSmall(disk, name string) ([]byte, error) {
	root, err := os.OpenRoot(disk)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read from
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSmallFile {
		return nil, fmt.Errorf("%s is not a small regular file", filepath.Join(disk, name))
	}
	return root.ReadFile(name)
}

// writeDurably replaces a file of a disk and returns when it is on the medium.
func writeDurably(disk, name string, data []byte) (err error) {
	root, err := os.OpenRoot(disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	temp := name + ".tmp"
	if err := root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	if err := root.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(root)
}

// removeDurably removes a file of a disk; none there is fine.
func removeDurably(disk, name string) (err error) {
	root, err := os.OpenRoot(disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := root.Remove(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return syncDir(root)
}

func syncDir(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
