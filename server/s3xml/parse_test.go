package s3xml

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	n, err := Parse([]byte("\uFEFF<?xml version='1.0' encoding=\"utf-8\" standalone='yes'?>\n<!-- c -->\r\n" +
		`<x:Delete xmlns:x="http://e" a = 'b&amp;c'><Object><Key>a&amp;&#x62;<![CDATA[<c>]]>` + "\r\nd<!-- e --></Key></Object><Quiet/></x:Delete>\n<!-- end -->"))
	if err != nil {
		t.Fatal(err)
	}
	want := Node{Name: "Delete", Kids: []Node{{Name: "Object", Kids: []Node{{Name: "Key", Text: "a&b<c>\nd"}}}, {Name: "Quiet"}}}
	if fmt.Sprint(n) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", n, want)
	}
	// More than XML 1.0 allows: keys may have control characters.
	for text, want := range map[string]string{"&#x8;": "\b", "\x04": "\x04", "&#xD;": "\r", "&#1114111;": "\U0010FFFF"} {
		if n, err := Parse([]byte("<a>" + text + "</a>")); err != nil || n.Text != want {
			t.Errorf("%q: %q, %v", text, n.Text, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, doc := range []string{
		"", " ", "text", "<", "<a", "<a>", "<a><b></a></b>", "<a></b>", "<a></a><b/>", "<a/>text", "<a b></a>", "<a b=c/>", `<a b="<"/>`, `<a b="1"c="2"/>`,
		"<a>&x;</a>", "<a>&amp</a>", "<a>&#xD800;</a>", "<a>&#x110000;</a>", "<a>&#;</a>", "<a>&#x;</a>", "<a>&#-1;</a>", "<a>&#x+1;</a>", "<a>]]></a>",
		"<a><![CDATA[</a>", "<a><!-- -- --></a>", "<a><!-- </a>", "<!DOCTYPE a><a/>", "<a><!DOCTYPE b></a>", "<?xml?", "<?pi x?><a/>", "<a><?pi?></a>",
		`<?xml version="1.1"?><a/>`, `<?xml encoding="UTF-16"?><a/>`, `<?xml version="1.0" ~?><a/>`, "<a>text<b/></a>", "<a:b:c/>", "<:a/>", "<a:/>", "<1/>",
		"<a>\xff</a>", "\xff\xfe<\x00a\x00/\x00>\x00", " <?xml version='1.0'?><a/>", "<a/ >", "<a b='&x;'/>",
		strings.Repeat("<a>", maxDepth+1) + strings.Repeat("</a>", maxDepth+1), "<a>" + strings.Repeat("<b/>", maxElements) + "</a>",
	} {
		if n, err := Parse([]byte(doc)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.60q: %v, %v", doc, n, err)
		}
	}
}

// encoding/xml is the judge of everything that is XML 1.0 and within limits.
func oracle(doc []byte) (Node, error) {
	dec := xml.NewDecoder(strings.NewReader(string(doc)))
	var stack []Node
	var root *Node
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			if root == nil || len(stack) > 0 {
				return Node{}, io.ErrUnexpectedEOF
			}
			return *root, nil
		}
		if err != nil {
			return Node{}, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			stack = append(stack, Node{Name: tok.Name.Local})
		case xml.CharData:
			if len(stack) > 0 {
				stack[len(stack)-1].Text += string(tok)
			}
		case xml.EndElement:
			n := stack[len(stack)-1]
			if stack = stack[:len(stack)-1]; len(n.Kids) > 0 {
				n.Text = ""
			}
			if len(stack) > 0 {
				up := &stack[len(stack)-1]
				up.Kids = append(up.Kids, n)
			} else {
				root = &n
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"<a/>", "<a>x&amp;y</a>", "<?xml version='1.0'?><a><b c='d'>&#x41;</b><!-- e --></a>", "<a><![CDATA[<&]]>]</a>", "<x:a xmlns:x='y'><x:b/></x:a>",
		"<Delete><Object><Key>k</Key></Object></Delete>", "<a>\r\n</a>", "<a></a >", "<!DOCTYPE a><a/>", "<a><a><a>",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		n, err := Parse(doc)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("%v", err)
			}
			return
		}
		want, err := oracle([]byte(strings.TrimPrefix(string(doc), "\uFEFF")))
		if err != nil {
			// Control characters are what we accept beyond XML 1.0.
			if strings.Contains(err.Error(), "illegal character code") {
				return
			}
			t.Fatalf("%q: we see %+v, encoding/xml: %v", doc, n, err)
		}
		if !sameNode(n, want) {
			t.Fatalf("%q: we see %+v, encoding/xml %+v", doc, n, want)
		}
	})
}

func sameNode(a, b Node) bool {
	return a.Name == b.Name && a.Text == b.Text && slices.EqualFunc(a.Kids, b.Kids, sameNode)
}

// What is written is read back as it was, by us and by encoding/xml.
func TestTextRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		doc := append(AppendText([]byte("<a>"), text), "</a>"...)
		want := strings.Map(func(r rune) rune {
			if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
				return utf8.RuneError
			}
			return r
		}, text)
		var got string
		if err := xml.Unmarshal(doc, &got); err != nil || got != want {
			t.Fatalf("encoding/xml: %q, %v", got, err)
		}
		if n, err := Parse(doc); err != nil || n.Text != want {
			t.Fatalf("Parse: %q, %v", n.Text, err)
		}
	})
	if got := string(AppendText(nil, "a\xffb\xc3")); got != "a\uFFFDb\uFFFD" {
		t.Errorf("invalid UTF-8 became %q", got)
	}
}

// A key in a listing is never another key's name, whatever is in it.
func TestEncodedIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.String().Draw(t, "key")
		var w Writer
		w.Encoded("Key", key, false)
		if n, err := Parse(w.Bytes()); err != nil || n.Text != key {
			t.Fatalf("%q: %q, %v", w.Bytes(), n.Text, err)
		}
	})
	var w Writer
	w.Encoded("Key", "\x00\x01\x1f\x7f\r\uFFFE&", false)
	if got := string(w.Bytes()); got != "<Key>&#x0;&#x1;&#x1F;\x7f&#xD;&#xFFFE;&amp;</Key>" {
		t.Errorf("control characters became %q", got)
	}
}

func TestAppendURL(t *testing.T) {
	if got := string(AppendURL(nil, "a b+c/~-_.*%\xff\n")); got != "a%20b%2Bc/~-_.*%25%FF%0A" {
		t.Errorf("%s", got)
	}
}

func TestTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(-30610224000*2, 253402300799*2).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns"))
		if got, want := string(appendTime(nil, at)), at.UTC().Format(TimeFormat); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}

func TestRequests(t *testing.T) {
	del, err := ParseDelete([]byte(`<Delete><Quiet> true </Quiet><Object><Key> a </Key><VersionId>v</VersionId><ETag>"e"</ETag><Size>1</Size><LastModifiedTime>t</LastModifiedTime></Object></Delete>`))
	if want := (DeleteEntry{" a ", "v", `"e"`, "t", "1"}); err != nil || !del.Quiet || len(del.Objects) != 1 || del.Objects[0] != want {
		t.Errorf("%+v, %v", del, err)
	}
	for _, bad := range []string{"<Delete><Quiet>x</Quiet></Delete>", "<Delete><Quiet>1</Quiet><Quiet>1</Quiet></Delete>", "<Delete><Object><Key><x/></Key></Object></Delete>", "<Delete><Other/></Delete>", "<Del/>"} {
		if _, err := ParseDelete([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	com, err := ParseComplete([]byte(`<CompleteMultipartUpload><Part><PartNumber> 7 </PartNumber><ETag>"e"</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part></CompleteMultipartUpload>`))
	if err != nil || len(com.Parts) != 1 || com.Parts[0].Number != 7 || com.Parts[0].ETag != `"e"` || com.Parts[0].Checksums[0] != (PartChecksum{"CRC32", "AAAAAA=="}) {
		t.Errorf("%+v, %v", com, err)
	}
	for _, bad := range []string{
		"<Part><PartNumber>1</PartNumber></Part>", "<Part><ETag>e</ETag></Part>", "<Part><PartNumber>x</PartNumber><ETag>e</ETag></Part>",
		"<Part><PartNumber>1</PartNumber><PartNumber>2</PartNumber><ETag>e</ETag></Part>", "<Part><PartNumber>1</PartNumber><ETag>e</ETag><Extra/></Part>", "<Other/>",
		"<Part><PartNumber>1</PartNumber><ETag>e</ETag><Checksum/></Part>",
	} {
		if _, err := ParseComplete([]byte("<CompleteMultipartUpload>" + bad + "</CompleteMultipartUpload>")); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func BenchmarkListing(b *testing.B) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	owner := Owner{ID: strings.Repeat("a", 64), Name: "ringfence"}
	var w Writer
	b.ReportAllocs()
	for b.Loop() {
		w.Reset(w.Bytes())
		w.ListObjects(&ListHead{Bucket: "bkt", MaxKeys: 1000})
		for range 1000 {
			w.ListedObject(&ListedObject{Key: "some/folder/with/a name.txt", ModTime: at, ETag: "d41d8cd98f00b204e9800998ecf8427e", Checksum: "CRC64NVME", ChecksumType: "FULL_OBJECT", Owner: &owner}, true)
		}
		w.EndListObjects()
	}
	b.SetBytes(int64(len(w.Bytes())))
}

// BenchmarkBomb is the dearest document that Parse refuses.
func BenchmarkBomb(b *testing.B) {
	doc := []byte("<Delete>" + strings.Repeat("<a/>", 1<<20))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(doc); err == nil {
			b.Fatal("accepted")
		}
	}
}
