import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

const server = process.env.AGL_SERVER ?? 'http://127.0.0.1:4747';

export default defineConfig({
  base: './',
  plugins: [react()],
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  server: { proxy: { '/v1': server, '/api': server, '/proxy': server, '/metrics': server, '/healthz': server } },
  test: { include: ['src/**/*.test.ts'] },
});
