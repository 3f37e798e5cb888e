package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tool runs other people's clients.
type tool struct {
	path    string
	environ []string
	dir     string
}

// run runs the client, fails when it does, and returns what it printed.
func (c tool) run(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir = c.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "AWS_") { // the machine's own account and settings
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, c.environ...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(c.path), strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// makeTree fills a folder with files that clients like to get wrong.
func makeTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i, f := range []struct {
		name string
		size int64
	}{
		{"empty", 0}, {"one", 1}, {"small.txt", 4 << 10}, {"deep/er/file.bin", 300_000}, {"with space.txt", 100},
		{"pl+us & am;p.txt", 100}, {"\u00fcml\u00e4ut.txt", 100}, {"large.bin", 20 * mib},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, noiseBytes(uint64(i), f.size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// treeSum is one line per file: its name and the sum of its bytes.
func treeSum(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %x\n", rel, sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wantSameTree(t *testing.T, source, target string) {
	t.Helper()
	if want, got := treeSum(t, source), treeSum(t, target); got != want {
		t.Errorf("what came back differs:\n%s\nwant:\n%s", got, want)
	}
}

func awsCLI(t *testing.T, tg target) tool {
	t.Helper()
	return tool{needTool(t, "awscli", "aws"), []string{
		"AWS_ACCESS_KEY_ID=" + tg.user, "AWS_SECRET_ACCESS_KEY=" + tg.password, "AWS_DEFAULT_REGION=" + region,
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER=",
	}, t.TempDir()}
}

func TestAWSCLI(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket, aws := tg.bucket(t), awsCLI(t, tg)
	source, back := makeTree(t), t.TempDir()
	s3 := func(args ...string) string {
		return aws.run(t, append([]string{"--endpoint-url", tg.url, "s3"}, args...)...)
	}
	api := func(args ...string) string {
		return aws.run(t, append([]string{"--endpoint-url", tg.url, "s3api"}, args...)...)
	}
	s3("sync", "--no-progress", source, "s3://"+bucket+"/tree")
	if out := s3("sync", "--no-progress", source, "s3://"+bucket+"/tree"); strings.Contains(out, "upload") {
		t.Errorf("a second sync uploads again: %s", out)
	}
	s3("sync", "--no-progress", "s3://"+bucket+"/tree", back)
	wantSameTree(t, source, back)
	s3("cp", "s3://"+bucket+"/tree/large.bin", "s3://"+bucket+"/copy.bin")
	s3("mv", "s3://"+bucket+"/copy.bin", "s3://"+bucket+"/moved.bin")
	if out := s3("ls", "s3://"+bucket+"/"); !strings.Contains(out, "moved.bin") || strings.Contains(out, "copy.bin") || !strings.Contains(out, "PRE tree/") {
		t.Errorf("ls: %s", out)
	}
	api("put-object", "--bucket", bucket, "--key", "foo+1/bar", "--body", filepath.Join(source, "small.txt"), "--checksum-algorithm", "SHA256")
	if out := api("head-object", "--bucket", bucket, "--key", "foo+1/bar", "--checksum-mode", "ENABLED"); !strings.Contains(out, "ChecksumSHA256") {
		t.Errorf("head-object: %s", out)
	}
	if out := api("list-objects", "--bucket", bucket, "--prefix", "foo+1/*"); strings.Contains(out, "Contents") {
		t.Errorf("a star is no wildcard: %s", out)
	}
	s3("rm", "--recursive", "s3://"+bucket)
	if out := s3("ls", "--recursive", "s3://"+bucket); out != "" {
		t.Errorf("after rm --recursive: %s", out)
	}
}

func TestS3cmd(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	host := strings.TrimPrefix(tg.url, "http://")
	s3cmd := tool{needTool(t, "s3cmd", "s3cmd"), nil, t.TempDir()}
	run := func(args ...string) string {
		return s3cmd.run(t, append([]string{"-c", "/dev/null", "--no-ssl", "--host", host, "--host-bucket", host, "--access_key", tg.user,
			"--secret_key", tg.password, "--region", region, "--no-progress", "--multipart-chunk-size-mb", "5"}, args...)...)
	}
	source, back := makeTree(t), t.TempDir()
	run("sync", source+"/", "s3://"+bucket+"/tree/")
	run("sync", "s3://"+bucket+"/tree/", back+"/")
	wantSameTree(t, source, back)
	if out := run("ls", "s3://"+bucket+"/tree/"); !strings.Contains(out, "large.bin") || !strings.Contains(out, "DIR") {
		t.Errorf("ls: %s", out)
	}
	if out := run("info", "s3://"+bucket+"/tree/small.txt"); !strings.Contains(out, "MD5") {
		t.Errorf("info: %s", out)
	}
	run("cp", "s3://"+bucket+"/tree/small.txt", "s3://"+bucket+"/copy.txt")
	run("del", "--recursive", "--force", "s3://"+bucket+"/tree/")
	if out := run("ls", "--recursive", "s3://"+bucket); !strings.Contains(out, "copy.txt") || strings.Contains(out, "tree/") {
		t.Errorf("after del: %s", out)
	}
}

func TestRclone(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	rclone := tool{needTool(t, "rclone", "rclone"), []string{
		"RCLONE_CONFIG=/dev/null", "RCLONE_CONFIG_RF_TYPE=s3", "RCLONE_CONFIG_RF_PROVIDER=Other", "RCLONE_CONFIG_RF_ENDPOINT=" + tg.url,
		"RCLONE_CONFIG_RF_ACCESS_KEY_ID=" + tg.user, "RCLONE_CONFIG_RF_SECRET_ACCESS_KEY=" + tg.password, "RCLONE_CONFIG_RF_REGION=" + region,
		"RCLONE_CONFIG_RF_UPLOAD_CUTOFF=5Mi", "RCLONE_CONFIG_RF_CHUNK_SIZE=5Mi",
	}, t.TempDir()}
	source, back := makeTree(t), t.TempDir()
	rclone.run(t, "sync", source, "rf:"+bucket+"/tree")
	rclone.run(t, "check", "--download", source, "rf:"+bucket+"/tree")
	rclone.run(t, "sync", "rf:"+bucket+"/tree", back)
	wantSameTree(t, source, back)
	if err := os.Remove(filepath.Join(source, "one")); err != nil {
		t.Fatal(err)
	}
	rclone.run(t, "sync", source, "rf:"+bucket+"/tree")
	rclone.run(t, "moveto", "rf:"+bucket+"/tree/small.txt", "rf:"+bucket+"/moved.txt")
	if out := rclone.run(t, "lsf", "-R", "rf:"+bucket); !strings.Contains(out, "moved.txt") || strings.Contains(out, "tree/one\n") {
		t.Errorf("lsf: %s", out)
	}
	rclone.run(t, "purge", "rf:"+bucket+"/tree")
}

func TestRestic(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	restic := tool{needTool(t, "restic", "restic"), []string{
		"RESTIC_REPOSITORY=s3:" + tg.url + "/" + bucket + "/backup", "RESTIC_PASSWORD=restic-password", "RESTIC_CACHE_DIR=" + t.TempDir(),
		"AWS_ACCESS_KEY_ID=" + tg.user, "AWS_SECRET_ACCESS_KEY=" + tg.password, "AWS_DEFAULT_REGION=" + region,
	}, t.TempDir()}
	source, back := makeTree(t), t.TempDir()
	restic.run(t, "init")
	restic.run(t, "backup", source)
	if err := os.WriteFile(filepath.Join(source, "one"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	restic.run(t, "backup", source)
	restic.run(t, "check", "--read-data")
	restic.run(t, "restore", "latest", "--target", back)
	wantSameTree(t, source, filepath.Join(back, source))
	restic.run(t, "forget", "--keep-last", "1", "--prune")
	restic.run(t, "check")
}

// TestReadmeCommands runs the aws-cli lines of the README as they stand there,
// but for the port and the credentials.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	aws := awsCLI(t, tg)
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "aws --endpoint-url http://127.0.0.1:9000 "
	if err := os.WriteFile(filepath.Join(aws.dir, "hello.txt"), noiseBytes(1, 9*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	bucket := tg.bucket(t)
	tg.want(t, 204, request{method: "DELETE", bucket: bucket}) // the README makes it
	ran := 0
	for line := range strings.Lines(string(readme)) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), prefix)
		if !ok {
			continue
		}
		ran++
		args = strings.ReplaceAll(args, "my-bucket", bucket)
		aws.run(t, append([]string{"--endpoint-url", tg.url}, strings.Fields(args)...)...)
	}
	if ran < 3 {
		t.Fatalf("found %d aws-cli lines in the README", ran)
	}
	a := tg.want(t, 200, request{method: "GET", bucket: bucket, key: "hello.txt"})
	if !bytes.Equal(a.body, noiseBytes(1, 9*mib)) {
		t.Error("hello.txt is not what was uploaded")
	}
	again, err := os.ReadFile(filepath.Join(aws.dir, "again.txt"))
	if err != nil || !bytes.Equal(again, a.body) {
		t.Errorf("again.txt is not what was uploaded: %v", err)
	}
}

// TestContinueWithoutBody: a client that expects a 100 before an empty body
// gets it, and the connection stays good. botocore hangs otherwise.
func TestContinueWithoutBody(t *testing.T) {
	t.Parallel()
	tg := anyGateway(t)
	bucket := tg.bucket(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(tg.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	for _, body := range []string{"", "bytes", ""} {
		req, err := tg.signed(t.Context(), request{method: http.MethodPut, bucket: bucket, key: "k", body: []byte(body)})
		if err != nil {
			t.Fatal(err)
		}
		var head strings.Builder
		fmt.Fprintf(&head, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n", req.URL.EscapedPath(), req.URL.Host, len(body))
		for name := range req.Header {
			fmt.Fprintf(&head, "%s: %s\r\n", name, req.Header.Get(name))
		}
		if _, err := conn.Write([]byte(head.String() + "\r\n")); err != nil {
			t.Fatal(err)
		}
		status, err := answers.ReadString('\n')
		if err != nil || !strings.HasPrefix(status, "HTTP/1.1 100 ") {
			t.Fatalf("%d bytes: first %q, %v, want a 100", len(body), status, err)
		}
		if blank, err := answers.ReadString('\n'); err != nil || blank != "\r\n" {
			t.Fatalf("the 100 goes on with %q, %v", blank, err)
		}
		if _, err := conn.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Close {
			t.Fatalf("%d bytes: %s, close %v", len(body), resp.Status, resp.Close)
		}
	}
}
