//go:build unix

package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

func TestShrinkKeepsThePicture(t *testing.T) {
	full := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for x := range 40 {
		for y := range 40 {
			full.Set(x, y, color.RGBA{uint8(x / 20 * 200), uint8(y), 0, 255})
		}
	}
	var text bytes.Buffer
	if err := png.Encode(&text, full); err != nil {
		t.Fatal(err)
	}
	shrunk, err := shrink(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	small, err := png.Decode(bytes.NewReader(shrunk))
	if err != nil || small.Bounds() != full.Bounds() {
		t.Fatalf("got %v, %v", small.Bounds(), err)
	}
	for x := range 40 {
		for y := range 40 {
			if r, g, b, _ := small.At(x, y).RGBA(); color.RGBAModel.Convert(full.At(x, y)) != (color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}) {
				t.Fatalf("the pixel at %d, %d differs", x, y)
			}
		}
	}
}

func TestTheCommittedPicturesHaveTheRightSize(t *testing.T) {
	for name, width := range sights {
		file := filepath.Join("..", "..", "docs", "pictures", name+".png")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		config, err := png.DecodeConfig(bytes.NewReader(text))
		if err != nil || config.Width != int(float64(width)*scale) {
			t.Errorf("%s is %d pixels wide (%v): make screenshots", file, config.Width, err)
		}
	}
}
