package bench

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Collect lists the regular files under each root, in the order of their names.
// Each root is a device; one that is a file is itself the only file of its
// device. Symbolic links are neither followed nor listed. Devices limits how
// many roots are used, from the first on; 0 means all.
func Collect(ctx context.Context, roots []string, devices int) ([]ScanFile, error) {
	if devices < 0 || devices > DevicesMax || len(roots) > DevicesMax {
		return nil, usagef("devices: %d of %d roots, at most %d", devices, len(roots), DevicesMax)
	}
	if devices > len(roots) {
		return nil, usagef("%d devices are wanted and %d roots given", devices, len(roots))
	}
	if devices > 0 {
		roots = roots[:devices]
	}
	var files []ScanFile
	for device, root := range roots {
		before := len(files)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err = cmp.Or(err, ctx.Err()); err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if len(files) == ScanFilesMax {
				return usagef("more than %d files", ScanFilesMax)
			}
			files = append(files, ScanFile{Path: path, Device: device, Size: info.Size()})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", root, err)
		}
		if len(files) == before {
			return nil, usagef("%s has no regular files", root)
		}
	}
	return files, nil
}

// CollectList reads one path per line. Files belong to the device of the
// nearest root above them; roots are devices as for Collect, and files under
// none of them share one more.
func CollectList(ctx context.Context, r io.Reader, roots []string) ([]ScanFile, error) {
	var files []ScanFile
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		path := strings.TrimSpace(lines.Text())
		if path == "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return nil, fmt.Errorf("list of files: %w", err)
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("list of files: %s is not a regular file", path)
		}
		if len(files) == ScanFilesMax {
			return nil, usagef("more than %d files", ScanFilesMax)
		}
		files = append(files, ScanFile{Path: path, Device: deviceOf(path, roots), Size: info.Size()})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list of files: %w", err)
	}
	return dense(files), nil
}

func deviceOf(path string, roots []string) int {
	best, length := len(roots), -1
	for i, root := range roots {
		rel, err := filepath.Rel(root, path)
		if err == nil && filepath.IsLocal(rel) && len(root) > length {
			best, length = i, len(root)
		}
	}
	return best
}

// dense numbers the devices that have files from 0.
func dense(files []ScanFile) []ScanFile {
	var used []int
	for _, f := range files {
		if i, ok := slices.BinarySearch(used, f.Device); !ok {
			used = slices.Insert(used, i, f.Device)
		}
	}
	for i := range files {
		files[i].Device, _ = slices.BinarySearch(used, files[i].Device)
	}
	return files
}
