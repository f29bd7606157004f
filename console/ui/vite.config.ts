import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The server must be told where a console runs: BELFRY_SERVER=http://127.0.0.1:8080 npm run dev
export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy wants files
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: "manifest.json",
  },
  server: { proxy: { "/api": process.env.BELFRY_SERVER ?? "http://127.0.0.1:8080" } },
});
