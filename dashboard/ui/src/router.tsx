import { createBrowserRouter, Navigate } from 'react-router-dom';
import { base } from './api';
import { App } from './app';
import { Failure } from './parts/failure';

// Each page is a file of its own, so that the first one is there soon.
export const router = createBrowserRouter(
  [
    {
      element: <App />,
      errorElement: <Failure />,
      hydrateFallbackElement: <></>,
      children: [
        { index: true, lazy: () => import('./pages/overview') },
        { path: 'overview', element: <Navigate to="/" replace /> },
        { path: 'rollouts', lazy: () => import('./pages/rollouts') },
        { path: 'rollouts/:id', lazy: () => import('./pages/rollout') },
        { path: 'traces', lazy: () => import('./pages/traces') },
        { path: '*', lazy: () => import('./pages/missing') },
      ],
    },
  ],
  { basename: base === '/' ? '/' : base.slice(0, -1) },
);
