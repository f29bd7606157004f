import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// BELFRY_SERVER is the address of a running console: BELFRY_SERVER=http://127.0.0.1:8080 npm run dev
export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy forbids inlined assets
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: "manifest.json",
    // The first load is one file. Otherwise it is a file for each set of pages that share a part.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "main", tags: ["$initial"] }] } } },
  },
  server: { proxy: { "/api": process.env.BELFRY_SERVER ?? "http://127.0.0.1:8080" } },
});
